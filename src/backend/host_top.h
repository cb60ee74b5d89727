// ops::TopRows over the host's memory.
#pragma once

#include <cstdint>
#include <span>

#include "backend/ops/top_rows.h"

namespace moeflux {

/// values and ids of the values.size() best of `row`, as ops::TopRows orders them, without a mask
/// or with a row of one.
void top_of_row(std::span<const float> row, std::span<float> values, std::span<int32_t> ids,
                std::span<const uint32_t> mask = {});

/// The operation on the host, at once. All its tensors lie in the host's memory.
void host_top_rows(const ops::TopRows& op);

}  // namespace moeflux
