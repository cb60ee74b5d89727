// top_rows() of one row in the host's memory.
#pragma once

#include <cstdint>
#include <span>

namespace moeflux {

/// values and ids of the values.size() best of `row`, as Encoder::top_rows() orders them.
void top_of_row(std::span<const float> row, std::span<float> values, std::span<int32_t> ids);

}  // namespace moeflux
