// Queries that grow with their position.
#pragma once

#include "backend/encoder.h"
#include "model/config/rope.h"
#include "state/step_batch.h"

namespace moeflux {

/// Multiplies the rows of q [n, columns] in place by what their positions ask for; records nothing
/// while that is 1 everywhere.
void scale_queries(Encoder& e, Tensor q, const StepBatch& batch, const QueryScale& scale);

}  // namespace moeflux
