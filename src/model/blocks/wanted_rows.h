// The rows that the head is for: of a step, those whose logits somebody wants.
#pragma once

#include "backend/encoder.h"
#include "state/step_batch.h"

namespace moeflux::blocks {

/// The rows of x [n, cols] whose logits are wanted, as a contiguous tensor [batch.logits_rows(),
/// cols]: a part of x where they are neighbours, gathered into the first rows of `spare` [n, cols]
/// where they are not.
Tensor wanted_rows(Encoder& e, const StepBatch& batch, Tensor x, Tensor spare);

}  // namespace moeflux::blocks
