// Random blocks of GGML's types: every bit is random but for the scales, which are chosen so that
// the decoded numbers have mean zero and the deviation asked for. No scale is NaN, infinite or
// zero.
#pragma once

#include <cstddef>

#include "convert/random/synthetic.h"
#include "quant/ggml_types.h"

namespace moeflux {

/// True of types of which such blocks can be made: all readable ones but NVFP4, whose matrices need
/// a second tensor. F32, F16 and BF16 are uniform numbers, no blocks.
bool can_fill(const GgmlType& type);

/// Puts scales into a block of random bits, which choose among those that the tensor has.
void set_block_scales(const SyntheticTensor& tensor, std::byte* block);

}  // namespace moeflux
