// A step of a model on the trace backend: what it would ask of a device, without memory or
// arithmetic.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model/model.h"

namespace moeflux {

struct DryRun {
  size_t scratch_bytes = 0;    // for Device::create_encoder
  uint64_t weight_bytes = 0;   // of dense weights read
  uint64_t multiply_adds = 0;  // without routed experts
  std::string ops;             // one a line
};

/// Evaluates `tokens` tokens of a fresh sequence with logits for the last `logits_rows`. With a
/// target, fails with kUnsupported where that device does not compute one of the operations.
Result<DryRun> dry_run(const Model& model, int64_t tokens, int64_t logits_rows,
                       const Device* target = nullptr);

}  // namespace moeflux
