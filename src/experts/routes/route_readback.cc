#include "experts/routes/route_readback.h"

#include <algorithm>

#include "base/check.h"

namespace moeflux {

Result<std::span<const LayerRoutes>> RouteReadback::read(LayerId layer, Encoder& encoder,
                                                         const Routes& routes) {
  MF_RETURN_IF_ERROR(replace(layer, encoder, routes));
  const auto count = static_cast<size_t>(routes.ids.num_elements());
  ids_.resize(count);
  weights_.clear();
  MF_RETURN_IF_ERROR(encoder.read(std::as_writable_bytes(std::span(ids_)), routes.ids));
  if (is_observed()) {
    weights_.resize(count);
    MF_RETURN_IF_ERROR(encoder.read(std::as_writable_bytes(std::span(weights_)), routes.weights));
  }
  const auto top_k = static_cast<size_t>(routes.ids.dim(1));
  parts_.clear();
  size_t begin = 0;
  for (const StepRows& rows : rows_) {
    const size_t size = static_cast<size_t>(rows.rows) * top_k;
    MF_CHECK(begin + size <= count);
    LayerRoutes part{.layer = layer,
                     .phase = rows.phase,
                     .position = rows.position,
                     .tokens = rows.rows,
                     .ids = std::span(ids_).subspan(begin, size)};
    if (is_observed()) part.weights = std::span(weights_).subspan(begin, size);
    parts_.push_back(part);
    begin += size;
  }
  MF_CHECK(begin == count);
  return std::span<const LayerRoutes>(parts_);
}

Status RouteReadback::show(LayerId layer, Encoder& encoder, const Routes& routes) {
  if (!is_observed()) return replace(layer, encoder, routes);
  MF_RETURN_IF_ERROR(read(layer, encoder, routes));
  tell({});
  return {};
}

void RouteReadback::tell(std::span<const ExpertId> misses) {
  if (!is_observed()) return;
  untold_.assign(misses.begin(), misses.end());
  for (const LayerRoutes& part : parts_) {
    const auto is_chosen = [&](ExpertId expert) {
      return std::ranges::find(part.ids, index(expert)) != part.ids.end();
    };
    told_.clear();
    std::ranges::copy_if(untold_, std::back_inserter(told_), is_chosen);
    std::erase_if(untold_, is_chosen);
    observer_->routed(part, told_);
  }
}

}  // namespace moeflux
