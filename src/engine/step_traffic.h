// The bytes of memory that a step must move, whatever the implementation: dense weights and each
// expert that its tokens use once, and the states of its sequences. Over the memory's speed they
// are the least time that the step takes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "load/model_loader.h"

namespace moeflux {

class StepTraffic {
 public:
  /// Evaluates a token on the trace backend. The model must outlive it. Fails as dry_run().
  static Result<StepTraffic> of(const LoadedModel& model);

  /// The bytes of a step of `rows` tokens of decode, of sequences that are then so long. `experts`
  /// are the distinct ones of all layers that were counted; 0, where nobody counts: as many as
  /// equally likely experts would be.
  double decode_bytes(std::span<const int64_t> lengths, int64_t rows, uint64_t experts) const;

 private:
  StepTraffic(const LoadedModel& model, uint64_t dense_bytes);

  const LoadedModel* model_;
  double dense_bytes_;
  double expert_bytes_;  // on average
  std::vector<LayerStateSpec> states_;
};

}  // namespace moeflux
