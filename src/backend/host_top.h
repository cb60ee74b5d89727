// Encoder::top_rows() over the host's memory.
#pragma once

#include "tensor/tensor.h"

namespace moeflux {

/// What Encoder::top_rows() promises, at once. All three tensors lie in the host's memory.
void host_top_rows(Tensor values, Tensor ids, Tensor x);

}  // namespace moeflux
