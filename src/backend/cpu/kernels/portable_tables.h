// The tables of isa/portable.cc and isa/select_portable.cc, for those who choose them. By
// themselves, so that no other kernels are compiled for them.
#pragma once

#include "backend/cpu/kernels/kernel_table.h"
#include "backend/cpu/kernels/select_table.h"
#include "backend/cpu/kernels/tile_table.h"

namespace moeflux::cpu {

extern const KernelTable kPortableKernels;
extern const SelectKernels kPortableSelect;
extern const TileKernels kPortableF32Tiles;

}  // namespace moeflux::cpu
