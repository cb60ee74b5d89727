// Int8 kernels for x86-64 with AVX2, FMA and F16C; compiled with exactly those flags.
#include <immintrin.h>

#include "backend/cpu/kernels/block_tables.h"
#include "backend/cpu/kernels/tile_table.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

namespace moeflux::cpu {
namespace isa_int8_avx2 {
#include "backend/cpu/kernels/int8_lanes_avx2-inl.h"
//
#include "backend/cpu/kernels/int8_sums_avx2-inl.h"
//
#include "backend/cpu/kernels/int8_quantize-inl.h"
//
#include "backend/cpu/kernels/block_lanes_avx2-inl.h"
//
#include "backend/cpu/kernels/block_rows-inl.h"
//
#include "backend/cpu/kernels/int8_tiles-inl.h"
//
#include "backend/cpu/kernels/q16_tiles-inl.h"
//
#include "backend/cpu/kernels/q16_sums_avx2-inl.h"
//
#include "backend/cpu/kernels/q16_few-inl.h"
}  // namespace isa_int8_avx2

const TileKernels kAvx2Int8Tiles = isa_int8_avx2::make_int8_tiles("avx2");
const TileKernels kAvx2Q16Tiles = isa_int8_avx2::make_q16_tiles("avx2");

}  // namespace moeflux::cpu
