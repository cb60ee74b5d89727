// The experts that a router has chosen.
#pragma once

#include "tensor/tensor.h"

namespace moeflux {

/// The experts of each token, best first. Ties in score go to the lower expert id.
struct Routes {
  Tensor ids;      // i32 [tokens, top_k]
  Tensor weights;  // f32 [tokens, top_k]
};

}  // namespace moeflux
