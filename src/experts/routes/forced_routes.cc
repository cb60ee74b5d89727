#include "experts/routes/forced_routes.h"

#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/format.h"

namespace moeflux {
namespace {

/// One token's experts, best first, and their weights.
struct TokenRoutes {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};
using Tokens = std::vector<TokenRoutes>;

/// The tokens of one phase by layer. Layers without rows are left out.
std::vector<Tokens> collect_tokens(const RouteTrace& trace, StepPhase phase) {
  std::vector<Tokens> layers(static_cast<size_t>(trace.header().num_layers));
  for (const RouteTrace::Visit& visit : trace.visits()) {
    if (visit.phase != phase) continue;
    const LayerRoutes routes = trace.routes(visit);
    const auto top_k = static_cast<size_t>(routes.top_k());
    for (size_t at = 0; at < routes.ids.size(); at += top_k) {
      const auto ids = routes.ids.subspan(at, top_k);
      const auto weights = routes.weights.subspan(at, top_k);
      layers[static_cast<size_t>(index(visit.layer))].push_back(
          {{ids.begin(), ids.end()}, {weights.begin(), weights.end()}});
    }
  }
  layers.erase(std::remove_if(layers.begin(), layers.end(),
                              [](const auto& tokens) { return tokens.empty(); }),
               layers.end());
  return layers;
}

class ForcedRoutes {
 public:
  ForcedRoutes(const RouteTrace& trace, const ExpertTable& table,
               const ForcedRoutesOptions& options)
      : table_(table),
        options_(options),
        prompt_(collect_tokens(trace, StepPhase::kPrompt)),
        decode_(collect_tokens(trace, StepPhase::kDecode)),
        taken_(table.layers.size()) {
    if (prompt_.empty()) prompt_ = decode_;
    size_t routed = 0;
    for (const ExpertLayer& layer : table.layers) {
      routed_index_.push_back(routed);
      if (layer.num_experts > 0) ++routed;
    }
  }

  Status operator()(LayerId layer, std::span<const StepRows> step, Encoder& encoder,
                    const Routes& routes) {
    MF_RETURN_IF_ERROR(choose(layer, step, routes.ids.dim(1)));
    MF_CHECK(ids_.size() == static_cast<size_t>(routes.ids.num_elements()));
    encoder.write(routes.ids, std::as_bytes(std::span(ids_)));
    if (options_.with_weights) {
      encoder.write(routes.weights, std::as_bytes(std::span(weights_)));
    }
    return {};
  }

  // Sets ids() to [rows, top_k] of the step, and the weights alike.
  Status choose(LayerId layer, std::span<const StepRows> step, int64_t top_k) {
    ids_.clear();
    weights_.clear();
    const auto at = static_cast<size_t>(index(layer));
    const Tokens& decode = decode_[routed_index_[at] % decode_.size()];
    const Tokens& prompt = prompt_[routed_index_[at] % prompt_.size()];
    const auto sequences =
        static_cast<size_t>(std::ranges::count(step, StepPhase::kDecode, &StepRows::phase));
    Taken& taken = taken_[at];
    size_t longest = 0;  // of those that decode
    size_t sequence = 0;
    for (const StepRows& rows : step) {
      if (rows.phase == StepPhase::kDecode) {
        const size_t ahead = sequence++ * decode.size() / sequences;
        MF_RETURN_IF_ERROR(append(layer, decode, taken.decode + ahead, rows.rows, top_k));
        longest = std::max(longest, static_cast<size_t>(rows.rows));
      } else {
        MF_RETURN_IF_ERROR(append(layer, prompt, taken.prompt, rows.rows, top_k));
        taken.prompt = (taken.prompt + static_cast<size_t>(rows.rows)) % prompt.size();
      }
    }
    taken.decode = (taken.decode + longest) % decode.size();
    return {};
  }
  const std::vector<int32_t>& ids() const { return ids_; }

 private:
  struct Taken {
    size_t prompt = 0;
    size_t decode = 0;
  };

  // Appends [rows, top_k] of the recorded tokens from `first` on to ids_ and weights_.
  Status append(LayerId layer, const Tokens& recorded, size_t first, int64_t rows, int64_t top_k) {
    for (int64_t t = 0; t < rows; ++t) {
      const size_t next = (first + static_cast<size_t>(t)) % recorded.size();
      const std::vector<float>& weights = recorded[next].weights;
      if (options_.with_weights && weights.size() != static_cast<size_t>(top_k)) {
        return make_error(ErrorCode::kInvalidArgument,
                          "layer {}: the trace has {} weights a token, expected the model's {}",
                          index(layer), weights.size(), top_k);
      }
      weights_.insert(weights_.end(), weights.begin(), weights.end());
      append_token(recorded, next, static_cast<size_t>(top_k), table_.layer(layer).num_experts);
    }
    return {};
  }

  void append_token(const Tokens& recorded, size_t token, size_t top_k, int32_t num_experts) {
    const size_t begin = ids_.size();
    // After as many tokens as ranks there is an expert for each, or the layer is that small.
    for (size_t ahead = 0; ahead <= top_k && ids_.size() - begin < top_k; ++ahead) {
      for (const int32_t recorded_id : recorded[(token + ahead) % recorded.size()].ids) {
        if (ids_.size() - begin == top_k) break;
        const int32_t id = recorded_id % num_experts;
        const bool own = ahead == 0;
        if (!taken_before(begin, id)) {
          ids_.push_back(id);
        } else if (own) {
          ids_.push_back(next_free(begin, id, num_experts));
        }
      }
    }
    while (ids_.size() - begin < top_k) ids_.push_back(next_free(begin, 0, num_experts));
  }
  bool taken_before(size_t begin, int32_t id) const {
    return std::find(ids_.begin() + static_cast<std::ptrdiff_t>(begin), ids_.end(), id) !=
           ids_.end();
  }
  // A router never chooses more experts than the layer has: one is free.
  int32_t next_free(size_t begin, int32_t id, int32_t num_experts) const {
    while (taken_before(begin, id)) id = (id + 1) % num_experts;
    return id;
  }

  const ExpertTable& table_;
  ForcedRoutesOptions options_;
  std::vector<Tokens> prompt_;
  std::vector<Tokens> decode_;
  std::vector<size_t> routed_index_;  // by layer, among those with experts
  std::vector<Taken> taken_;          // by layer
  std::vector<int32_t> ids_;
  std::vector<float> weights_;
};

Status check_decode(const RouteTrace& trace) {
  const bool has_decode =
      std::any_of(trace.visits().begin(), trace.visits().end(),
                  [](const auto& visit) { return visit.phase == StepPhase::kDecode; });
  if (has_decode) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "the trace of {} has no decode tokens, expected at least one",
                    trace.header().model);
}

}  // namespace

Result<double> forced_expert_bytes(const RouteTrace& trace, const ExpertTable& table,
                                   std::span<const int64_t> top_k, std::span<const StepRows> rows,
                                   int64_t steps) {
  MF_RETURN_IF_ERROR(check_decode(trace));
  MF_CHECK(top_k.size() == table.layers.size() && steps > 0);
  ForcedRoutes routes(trace, table, {});
  double bytes = 0.0;
  for (size_t l = 0; l < table.layers.size(); ++l) {
    const ExpertLayer& layer = table.layers[l];
    if (layer.num_experts == 0) continue;
    for (int64_t step = 0; step < steps; ++step) {
      MF_RETURN_IF_ERROR(routes.choose(LayerId{static_cast<int32_t>(l)}, rows, top_k[l]));
      const std::set<int32_t> distinct(routes.ids().begin(), routes.ids().end());
      bytes += static_cast<double>(distinct.size() * layer.bytes_per_expert());
    }
  }
  return bytes / static_cast<double>(steps);
}

Result<RouteReplacement> force_routes(const RouteTrace& trace, const ExpertTable& table,
                                      const ForcedRoutesOptions& options) {
  MF_RETURN_IF_ERROR(check_decode(trace));
  return RouteReplacement(ForcedRoutes(trace, table, options));
}

std::string describe_forced_routes(const RouteTrace& trace, int64_t layers, int64_t experts,
                                   int64_t top_k) {
  const RouteTraceHeader& header = trace.header();
  return formatted(
      "routes forced from {} ({} layers of {} experts, {} a token) onto {} layers of {} experts, "
      "{} a token: layers and experts modulo, missing ranks from the tokens that follow, weights "
      "the router's; the text is meaningless",
      header.model, header.num_layers, header.num_experts, trace.demand().per_layer, layers,
      experts, top_k);
}

}  // namespace moeflux
