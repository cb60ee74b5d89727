#include "experts/forced_routes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/format.h"

namespace moeflux {
namespace {

using TokenIds = std::vector<int32_t>;

/// The tokens of one phase: [layer][token] -> ids, best first. Layers without rows are left out.
std::vector<std::vector<TokenIds>> collect_tokens(const RouteTrace& trace, RoutePhase phase) {
  std::vector<std::vector<TokenIds>> layers(static_cast<size_t>(trace.header().num_layers));
  for (const RouteTrace::Visit& visit : trace.visits()) {
    if (visit.phase != phase) continue;
    const LayerRoutes routes = trace.routes(visit);
    const auto top_k = static_cast<size_t>(routes.top_k());
    for (size_t at = 0; at < routes.ids.size(); at += top_k) {
      const auto ids = routes.ids.subspan(at, top_k);
      layers[static_cast<size_t>(index(visit.layer))].emplace_back(ids.begin(), ids.end());
    }
  }
  layers.erase(std::remove_if(layers.begin(), layers.end(),
                              [](const auto& tokens) { return tokens.empty(); }),
               layers.end());
  return layers;
}

// Wants no hints, as the interface has it: what routers say early is not what is forced on them.
class ForcedRoutesStore : public ExpertStore {
 public:
  ForcedRoutesStore(std::unique_ptr<ExpertStore> store, const RouteTrace& trace,
                    const ExpertTable& table)
      : store_(std::move(store)),
        table_(table),
        prompt_(collect_tokens(trace, RoutePhase::kPrefill)),
        decode_(collect_tokens(trace, RoutePhase::kDecode)),
        taken_(table.layers.size()) {
    if (prompt_.empty()) prompt_ = decode_;
    size_t routed = 0;
    for (const ExpertLayer& layer : table.layers) {
      routed_index_.push_back(routed);
      if (layer.num_experts > 0) ++routed;
    }
  }

  Result<std::unique_ptr<ExpertLease>> lease(LayerId layer, Encoder& encoder,
                                             const Routes& routes) override {
    choose(layer, routes.ids.dim(0), routes.ids.dim(1));
    encoder.write(routes.ids, std::as_bytes(std::span(ids_)));
    return store_->lease(layer, encoder, routes);
  }
  void begin_step(int64_t position) override { store_->begin_step(position); }
  void observe_routes(RouteObserver* observer) override { store_->observe_routes(observer); }
  ExpertStats stats() const override { return store_->stats(); }
  uint64_t capacity_bytes() const override { return store_->capacity_bytes(); }
  void release_memory(uint64_t bytes) override { store_->release_memory(bytes); }
  ExpertCache* cache() override { return store_->cache(); }

 private:
  struct Taken {
    size_t prompt = 0;
    size_t decode = 0;
  };

  // ids_ = [tokens, top_k] of the trace's next tokens.
  void choose(LayerId layer, int64_t tokens, int64_t top_k) {
    const auto at = static_cast<size_t>(index(layer));
    const auto& layers = tokens == 1 ? decode_ : prompt_;
    const std::vector<TokenIds>& recorded = layers[routed_index_[at] % layers.size()];
    size_t& next = tokens == 1 ? taken_[at].decode : taken_[at].prompt;
    ids_.clear();
    for (int64_t t = 0; t < tokens; ++t) {
      append_token(recorded, next, static_cast<size_t>(top_k), table_.layer(layer).num_experts);
      next = (next + 1) % recorded.size();
    }
  }

  void append_token(const std::vector<TokenIds>& recorded, size_t token, size_t top_k,
                    int32_t num_experts) {
    const size_t begin = ids_.size();
    // After as many tokens as ranks there is an expert for each, or the layer is that small.
    for (size_t ahead = 0; ahead <= top_k && ids_.size() - begin < top_k; ++ahead) {
      for (const int32_t recorded_id : recorded[(token + ahead) % recorded.size()]) {
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

  std::unique_ptr<ExpertStore> store_;
  const ExpertTable& table_;
  std::vector<std::vector<TokenIds>> prompt_;
  std::vector<std::vector<TokenIds>> decode_;
  std::vector<size_t> routed_index_;  // by layer, among those with experts
  std::vector<Taken> taken_;          // by layer
  std::vector<int32_t> ids_;
};

}  // namespace

Result<std::unique_ptr<ExpertStore>> make_forced_routes_store(std::unique_ptr<ExpertStore> store,
                                                              const RouteTrace& trace,
                                                              const ExpertTable& table) {
  const bool has_decode =
      std::any_of(trace.visits().begin(), trace.visits().end(),
                  [](const auto& visit) { return visit.phase == RoutePhase::kDecode; });
  if (!has_decode) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the trace of {} has no decode tokens, expected at least one",
                      trace.header().model);
  }
  return std::unique_ptr<ExpertStore>(
      std::make_unique<ForcedRoutesStore>(std::move(store), trace, table));
}

std::string describe_forced_routes(const RouteTrace& trace, int64_t layers, int64_t experts,
                                   int64_t top_k) {
  const RouteTraceHeader& header = trace.header();
  return format(
      "routes forced from {} ({} layers of {} experts, {} a token) onto {} layers of {} experts, "
      "{} a token: layers and experts modulo, missing ranks from the tokens that follow, weights "
      "the router's; the text is meaningless",
      header.model, header.num_layers, header.num_experts, trace.demand().per_layer, layers,
      experts, top_k);
}

}  // namespace moeflux
