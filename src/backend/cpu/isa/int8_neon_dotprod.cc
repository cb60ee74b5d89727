// Int8 kernels for 64-bit Arm with dot products; compiled with exactly those flags.
#include <arm_neon.h>

#include "backend/cpu/kernels/block_tables.h"
#include "backend/cpu/kernels/tile_table.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

namespace moeflux::cpu {
namespace isa_int8_neon_dotprod {
#include "backend/cpu/kernels/int8_lanes_neon-inl.h"
//
#include "backend/cpu/kernels/int8_sums_dot-inl.h"
//
#include "backend/cpu/kernels/int8_quantize-inl.h"
//
#include "backend/cpu/kernels/block_lanes_neon-inl.h"
//
#include "backend/cpu/kernels/block_rows-inl.h"

constexpr int kBlockTokens = 6;  // times four vectors of accumulators, of 32 registers

#include "backend/cpu/kernels/int8_tiles-inl.h"
//
#include "backend/cpu/kernels/q16_tiles-inl.h"
//
#include "backend/cpu/kernels/q16_sums_bytes-inl.h"
//
#include "backend/cpu/kernels/q16_few-inl.h"
}  // namespace isa_int8_neon_dotprod

const TileKernels kNeonDotprodInt8Tiles = isa_int8_neon_dotprod::make_int8_tiles("neon-dotprod");
const TileKernels kNeonDotprodQ16Tiles = isa_int8_neon_dotprod::make_q16_tiles("neon-dotprod");
const BlockKernels kNeonDotprodBlocks = isa_int8_neon_dotprod::kBlockKernels;

}  // namespace moeflux::cpu
