// Ranks experts by worth: one number per expert, kept for absent experts too. A policy knows
// routing only; slots, pins and states are the cache's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/ids.h"

namespace moeflux {

enum class CachePolicy : uint8_t { kDecayedLfu, kLru };

std::string_view cache_policy_name(CachePolicy policy);
/// "lfu" or "lru".
std::optional<CachePolicy> parse_cache_policy(std::string_view name);

/// How many layers and, in the widest of them, experts there are.
struct ExpertShape {
  int32_t num_layers = 0;
  int32_t num_experts = 0;

  size_t size() const { return static_cast<size_t>(num_layers) * static_cast<size_t>(num_experts); }
  size_t index_of(ExpertKey key) const {
    return static_cast<size_t>(index(key.layer)) * static_cast<size_t>(num_experts) +
           static_cast<size_t>(index(key.expert));
  }
};

struct EvictionPolicyOptions {
  CachePolicy policy = CachePolicy::kDecayedLfu;
  /// Factor of a use's count for each further visit of its layer. 0.8 to 0.95 are within 1.5 points
  /// of hits of one another on three short recorded traces (docs/experiments).
  double decay = 0.9;
  /// Weight of the prompt's routing against as many tokens of decode: 0.05 to 1 are alike.
  double prefill_weight = 0.25;
};

/// Experts are ordered by rank() within a layer, and by worth() across layers. Ranks change only by
/// the calls below, not as time passes: that is what lets a heap hold them.
class EvictionPolicy {
 public:
  /// No expert with this rank was ever used.
  static constexpr int64_t kNeverUsed = INT64_MIN / 2;

  virtual ~EvictionPolicy() = default;

  /// A token of decode reaches the layer: earlier uses of its experts count less.
  virtual void begin_visit(LayerId layer) = 0;
  virtual void note_use(ExpertKey key) = 0;
  /// `uses` of a prompt's `tokens` tokens chose the expert. To be called for every expert the
  /// prompt chose, after begin_prefill() of its layer with the same tokens.
  virtual void begin_prefill(LayerId layer, double tokens) = 0;
  virtual void note_prefill(ExpertKey key, double uses) = 0;

  virtual int64_t rank(ExpertKey key) const = 0;
  /// A rank of the layer, comparable with those of other layers now.
  virtual int64_t worth(LayerId layer, int64_t rank) const = 0;
};

std::unique_ptr<EvictionPolicy> make_eviction_policy(const ExpertShape& shape,
                                                     const EvictionPolicyOptions& options);

}  // namespace moeflux
