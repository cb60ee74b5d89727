#include "experts/cache/eviction_policy.h"

#include <cmath>
#include <vector>

#include "base/check.h"

namespace moeflux {
namespace {

// Ranks are logarithms in fixed point: they grow with the visit instead of being decayed, and equal
// scores of different layers compare equal.
constexpr double kRankOne = 65536.0;

/// A count per expert that shrinks by a factor at every visit of its layer; decayed when looked at.
class DecayedLfu : public EvictionPolicy {
 public:
  DecayedLfu(const ExpertShape& shape, const EvictionPolicyOptions& options)
      : shape_(shape),
        rank_step_(std::llround(-std::log2(options.decay) * kRankOne)),
        prefill_scale_(options.prefill_weight / (1.0 - options.decay)),
        layers_(static_cast<size_t>(shape.num_layers)),
        experts_(shape.size()) {
    MF_CHECK(options.decay > 0.0 && options.decay < 1.0 && options.prefill_weight >= 0.0);
  }

  void begin_visit(LayerId layer) override {
    LayerState& state = layers_[static_cast<size_t>(index(layer))];
    if (state.prefill_tokens > 0.0) end_prefill(layer, state);
    ++state.visits;
  }
  void note_use(ExpertKey key) override {
    Count& count = experts_[shape_.index_of(key)];
    const int64_t now = layers_[static_cast<size_t>(index(key.layer))].visits;
    count.uses = decayed(count, now) + 1.0;
    count.visit = now;
  }
  void begin_prefill(LayerId layer, double tokens) override {
    layers_[static_cast<size_t>(index(layer))].prefill_tokens += tokens;
  }
  void note_prefill(ExpertKey key, double uses) override {
    experts_[shape_.index_of(key)].prefill_uses += uses;
  }

  int64_t rank(ExpertKey key) const override {
    const LayerState& layer = layers_[static_cast<size_t>(index(key.layer))];
    const double score = score_now(experts_[shape_.index_of(key)], layer);
    if (score <= 0.0) return kNeverUsed;
    return std::llround(std::log2(score) * kRankOne) + layer.visits * rank_step_;
  }
  int64_t worth(LayerId layer, int64_t rank) const override {
    if (rank == kNeverUsed) return rank;
    return rank - layers_[static_cast<size_t>(index(layer))].visits * rank_step_;
  }

 private:
  struct Count {
    double uses = 0.0;  // as of `visit`
    double prefill_uses = 0.0;
    int64_t visit = 0;
  };
  struct LayerState {
    int64_t visits = 0;
    double prefill_tokens = 0.0;  // since the last visit of decode
  };

  double decayed(const Count& count, int64_t now) const {
    const auto steps = static_cast<double>((now - count.visit) * rank_step_);
    return count.uses * std::exp2(-steps / kRankOne);
  }
  // The prompt's share of an expert, times what a share of 1 would count in the long run of decode.
  double score_now(const Count& count, const LayerState& layer) const {
    double score = decayed(count, layer.visits);
    if (layer.prefill_tokens > 0.0) {
      score += prefill_scale_ * count.prefill_uses / layer.prefill_tokens;
    }
    return score;
  }
  // The prompt's shares become part of the counts, which keeps every rank as it is.
  void end_prefill(LayerId layer, LayerState& state) {
    for (int32_t e = 0; e < shape_.num_experts; ++e) {
      Count& count = experts_[shape_.index_of({layer, ExpertId{e}})];
      count = {score_now(count, state), 0.0, state.visits};
    }
    state.prefill_tokens = 0.0;
  }

  ExpertShape shape_;
  int64_t rank_step_;
  double prefill_scale_;
  std::vector<LayerState> layers_;
  std::vector<Count> experts_;
};

class Lru : public EvictionPolicy {
 public:
  explicit Lru(const ExpertShape& shape) : shape_(shape), used_(shape.size(), kNeverUsed) {}

  void begin_visit(LayerId) override {}
  void note_use(ExpertKey key) override { used_[shape_.index_of(key)] = ++clock_; }
  void begin_prefill(LayerId, double) override {}
  void note_prefill(ExpertKey key, double) override { note_use(key); }
  int64_t rank(ExpertKey key) const override { return used_[shape_.index_of(key)]; }
  int64_t worth(LayerId, int64_t rank) const override { return rank; }

 private:
  ExpertShape shape_;
  int64_t clock_ = 0;
  std::vector<int64_t> used_;
};

}  // namespace

std::string_view cache_policy_name(CachePolicy policy) {
  switch (policy) {
    case CachePolicy::kDecayedLfu:
      return "lfu";
    case CachePolicy::kLru:
      return "lru";
  }
  __builtin_unreachable();
}

std::optional<CachePolicy> parse_cache_policy(std::string_view name) {
  for (const CachePolicy policy : {CachePolicy::kDecayedLfu, CachePolicy::kLru}) {
    if (name == cache_policy_name(policy)) return policy;
  }
  return std::nullopt;
}

std::unique_ptr<EvictionPolicy> make_eviction_policy(const ExpertShape& shape,
                                                     const EvictionPolicyOptions& options) {
  switch (options.policy) {
    case CachePolicy::kDecayedLfu:
      return std::make_unique<DecayedLfu>(shape, options);
    case CachePolicy::kLru:
      return std::make_unique<Lru>(shape);
  }
  __builtin_unreachable();
}

}  // namespace moeflux
