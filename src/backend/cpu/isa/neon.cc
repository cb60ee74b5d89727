// Kernels for 64-bit Arm.
#include <arm_neon.h>

#include "backend/cpu/kernels/tile_table.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

namespace moeflux::cpu {
namespace isa_neon {
#include "backend/cpu/kernels/vec_neon-inl.h"
//
#include "backend/cpu/kernels/kernels-inl.h"

namespace f32_tiles {
#include "backend/cpu/kernels/f32_tiles-inl.h"
}  // namespace f32_tiles
}  // namespace isa_neon

const KernelTable kNeonKernels = isa_neon::make_table("neon");
const TileKernels kNeonF32Tiles = isa_neon::f32_tiles::make_f32_tiles("neon");

}  // namespace moeflux::cpu
