// The kernels of avx2.cc for any machine: portable C++ with the same bits.
#include "backend/cpu/kernels/portable_tables.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

namespace moeflux::cpu {
namespace isa_portable {
#include "backend/cpu/kernels/vec_portable-inl.h"
//
#include "backend/cpu/kernels/kernels-inl.h"

namespace f32_tiles {
#include "backend/cpu/kernels/f32_tiles-inl.h"
}  // namespace f32_tiles
}  // namespace isa_portable

const KernelTable kPortableKernels = isa_portable::make_table("portable");
const TileKernels kPortableF32Tiles = isa_portable::f32_tiles::make_f32_tiles("portable");

}  // namespace moeflux::cpu
