// Queries that grow with their position.
#pragma once

#include "backend/encoder.h"
#include "model/config/rope.h"
#include "state/step_batch.h"

namespace moeflux {

/// Multiplies the rows of q [n, columns] in place by what their positions ask for; records nothing
/// while that is 1 everywhere.
void scale_queries(Encoder& e, Tensor q, const StepBatch& batch, const QueryScale& scale);

/// Factors of heads, f32 [heads]: slope * ln(position + 1) + offset.
struct LogScale {
  Tensor slope;
  Tensor offset;
};
/// Multiplies each head of q [n, heads, columns] in place by its factor.
void scale_heads(Encoder& e, Tensor q, const StepBatch& batch, const LogScale& scale);

}  // namespace moeflux
