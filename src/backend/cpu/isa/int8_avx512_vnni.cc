// Int8 kernels for x86-64 with AVX-512 VNNI (and F, BW, VL, DQ); compiled with exactly those flags.
#include <immintrin.h>

#include "backend/cpu/kernels/block_tables.h"
#include "backend/cpu/kernels/tile_table.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

namespace moeflux::cpu {
namespace isa_int8_avx512_vnni {
#include "backend/cpu/kernels/int8_lanes_avx512-inl.h"
//
#include "backend/cpu/kernels/int8_sums_dot-inl.h"
//
#include "backend/cpu/kernels/int8_quantize-inl.h"
//
#include "backend/cpu/kernels/block_lanes_avx512-inl.h"
//
#include "backend/cpu/kernels/block_rows-inl.h"

constexpr int kBlockTokens = 12;  // times kPairPanels of accumulators, of 32 registers

#include "backend/cpu/kernels/int8_tiles-inl.h"
//
#include "backend/cpu/kernels/q16_tiles-inl.h"
//
#include "backend/cpu/kernels/q16_sums_bytes-inl.h"
//
#include "backend/cpu/kernels/q16_few-inl.h"
}  // namespace isa_int8_avx512_vnni

const TileKernels kAvx512VnniInt8Tiles = isa_int8_avx512_vnni::make_int8_tiles("avx512-vnni");
const TileKernels kAvx512VnniQ16Tiles = isa_int8_avx512_vnni::make_q16_tiles("avx512-vnni");
const BlockKernels kAvx512VnniBlocks = isa_int8_avx512_vnni::kBlockKernels;

}  // namespace moeflux::cpu
