// The cost of a token: bytes over bandwidths and arithmetic over its rate, combined as the engine
// overlaps them. Arithmetic only; knows no model and no machine.
#pragma once

#include <cstdint>

namespace moeflux {

struct MachineSpeeds {
  double drive_bytes_per_second = 0.0;    // of random reads of whole experts
  double memory_bytes_per_second = 0.0;   // of reads with all threads
  double multiply_adds_per_second = 0.0;  // of many tokens' matrix products with all threads
};

/// The demands of one step, a token of decode or a chunk of a prompt, on a machine. Bytes are those
/// of the model as stored.
struct StepWork {
  double dense_bytes = 0.0;   // weights every step reads, and the sequence's state
  double expert_bytes = 0.0;  // of the distinct experts that the step uses
  double multiply_adds = 0.0;
  double expert_multiply_adds = 0.0;  // of these, the routed experts'
  double layers = 0.0;
  // A GPU reaches so much of the rates at which it reads and multiplies with these weights.
  double device_share = 1.0;
  double arithmetic_share = 1.0;
};

enum class CostLimit : uint8_t { kDrive, kMemory, kCompute };

struct StepCost {
  double drive_seconds = 0.0;   // experts that are not in memory
  double memory_seconds = 0.0;  // all that is read from memory, and arrivals written to it
  double compute_seconds = 0.0;
  /// When reads overlap only with the layer that waits for them: dense weights come on top.
  double in_layer_seconds = 0.0;
  /// When everything overlaps with everything: the largest of the three.
  double bound_seconds = 0.0;
  CostLimit limit = CostLimit::kMemory;  // the largest cost
};

/// `hit_rate` of the experts' bytes are in memory. A byte that is read from the drive passes the
/// memory twice, written and read. Speeds must be positive.
StepCost cost_of(const StepWork& work, double hit_rate, const MachineSpeeds& speeds);

/// Distinct experts of `num_experts` that `tokens` tokens use when each takes `top_k` at random:
/// natural text uses fewer.
double distinct_experts(int64_t num_experts, int64_t top_k, int64_t tokens);

struct HitRange {
  double low = 0.0;
  double high = 0.0;
};

/// Hit rates of a warm cache that holds `fraction` of all experts. Uniform routing hits exactly the
/// fraction; what natural text hits was published for eight models or replayed from their routes.
HitRange natural_hit_rates(double fraction);

}  // namespace moeflux
