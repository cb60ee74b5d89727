#include "schedule/route_record.h"

#include <algorithm>
#include <utility>

namespace moeflux {
namespace {

size_t bytes_of(const TokenRoutes& token) {
  size_t bytes = sizeof(TokenRoutes);
  for (const LayerChoice& layer : token.layers) {
    bytes += sizeof(LayerChoice) +
             4 * (layer.experts.capacity() + layer.weights.capacity() + layer.missed.capacity());
  }
  return bytes;
}

}  // namespace

void RouteRecord::add(const LayerRoutes& routes, std::span<const ExpertId> misses, uint64_t bytes) {
  // Tokens before the last one were recorded once, and are evaluated again after a failed step.
  const auto top_k = static_cast<size_t>(routes.top_k());
  const auto ids = routes.ids.last(top_k);
  const auto weights = routes.weights.last(std::min(top_k, routes.weights.size()));
  token_.position = routes.position + routes.tokens - 1;
  token_.read_bytes += bytes;
  LayerChoice choice{.layer = routes.layer,
                     .experts = {ids.begin(), ids.end()},
                     .weights = {weights.begin(), weights.end()}};
  for (const ExpertId expert : misses) choice.missed.push_back(index(expert));
  token_.layers.push_back(std::move(choice));
}

void RouteRecord::end_token(const StepCosts& costs) {
  TokenRoutes token = std::exchange(token_, {});
  if (token.layers.empty()) return;
  token.costs = costs;
  const size_t bytes = bytes_of(token);
  const std::lock_guard lock(mutex_);
  if (bytes_ + bytes > bytes_max_) {
    ++dropped_;
    return;
  }
  bytes_ += bytes;
  tokens_.push_back(std::move(token));
}

std::vector<TokenRoutes> RouteRecord::tokens() const {
  const std::lock_guard lock(mutex_);
  return tokens_;
}

uint64_t RouteRecord::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

}  // namespace moeflux
