// Int8 kernels for x86-64 with AVX-VNNI (and AVX2, FMA, F16C); compiled with exactly those flags.
#include <immintrin.h>

#include "backend/cpu/kernels/block_tables.h"
#include "backend/cpu/kernels/tile_table.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

#define MF_INT8_DPBUSD _mm256_dpbusd_avx_epi32

namespace moeflux::cpu {
namespace isa_int8_avx_vnni {
#include "backend/cpu/kernels/int8_lanes_avx2-inl.h"
//
#include "backend/cpu/kernels/int8_sums_dot-inl.h"
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
#include "backend/cpu/kernels/q16_sums_bytes-inl.h"
//
#include "backend/cpu/kernels/q16_few-inl.h"
}  // namespace isa_int8_avx_vnni

const TileKernels kAvxVnniInt8Tiles = isa_int8_avx_vnni::make_int8_tiles("avx-vnni");
const TileKernels kAvxVnniQ16Tiles = isa_int8_avx_vnni::make_q16_tiles("avx-vnni");

}  // namespace moeflux::cpu
