// Encoder::top_rows() over the host's memory.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace moeflux {

/// values and ids of the values.size() best of `row`, as Encoder::top_rows() orders them.
void top_of_row(std::span<const float> row, std::span<float> values, std::span<int32_t> ids);

/// Encoder::top_rows() on the host, at once. All three tensors lie in the host's memory.
void host_top_rows(Tensor values, Tensor ids, Tensor x);

}  // namespace moeflux
