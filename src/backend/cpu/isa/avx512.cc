// Kernels for x86-64 with AVX-512 F, BW, VL and DQ; compiled with exactly those flags.
#include <immintrin.h>

#include "backend/cpu/kernels/tile_table.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

namespace moeflux::cpu {
namespace isa_avx512 {
#include "backend/cpu/kernels/vec_avx512-inl.h"
//
#include "backend/cpu/kernels/kernels-inl.h"

namespace f32_tiles {
#include "backend/cpu/kernels/f32_tiles-inl.h"
}  // namespace f32_tiles
}  // namespace isa_avx512

const KernelTable kAvx512Kernels = isa_avx512::make_table("avx512");
const TileKernels kAvx512F32Tiles = isa_avx512::f32_tiles::make_f32_tiles("avx512");

}  // namespace moeflux::cpu
