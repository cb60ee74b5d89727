// Kernels for x86-64 with AVX2, FMA and F16C; compiled with exactly those flags.
#include <immintrin.h>

#include "backend/cpu/kernels/tile_table.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

namespace moeflux::cpu {
namespace isa_avx2 {
#include "backend/cpu/kernels/vec_avx2-inl.h"
//
#include "backend/cpu/kernels/kernels-inl.h"

namespace f32_tiles {
#include "backend/cpu/kernels/f32_tiles-inl.h"
}  // namespace f32_tiles
}  // namespace isa_avx2

const KernelTable kAvx2Kernels = isa_avx2::make_table("avx2");
const TileKernels kAvx2F32Tiles = isa_avx2::f32_tiles::make_f32_tiles("avx2");

}  // namespace moeflux::cpu
