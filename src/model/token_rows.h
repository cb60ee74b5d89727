// Rows of a step in a tensor of a layer's state that keeps one for each token.
#pragma once

#include <cstddef>

#include "backend/encoder.h"
#include "base/ids.h"
#include "state/step_batch.h"

namespace moeflux {

/// Copies x [n, width] into the layer's states, at the batch's positions.
void store_rows(Encoder& e, StepBatch& batch, LayerId layer, size_t tensor, Tensor x);
/// The inverse: out [n, width] from there.
void load_rows(Encoder& e, StepBatch& batch, LayerId layer, size_t tensor, Tensor out);

}  // namespace moeflux
