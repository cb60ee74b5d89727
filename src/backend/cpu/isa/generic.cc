// Kernels for any machine: portable C++.
#include "backend/cpu/kernels/tile_table.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

namespace moeflux::cpu {
namespace isa_generic {
#include "backend/cpu/kernels/vec_generic-inl.h"
//
#include "backend/cpu/kernels/kernels-inl.h"

namespace f32_tiles {
#include "backend/cpu/kernels/f32_tiles-inl.h"
}  // namespace f32_tiles
}  // namespace isa_generic

const KernelTable kGenericKernels = isa_generic::make_table("generic");
const TileKernels kGenericF32Tiles = isa_generic::f32_tiles::make_f32_tiles("generic");

}  // namespace moeflux::cpu
