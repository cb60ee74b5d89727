// Finds the compiled kernels that this machine can run.
#pragma once

#include <string_view>
#include <vector>

#include "backend/cpu/kernels/kernel_table.h"
#include "backend/cpu/kernels/select_table.h"
#include "backend/cpu/kernels/tile_table.h"
#include "base/result.h"

namespace moeflux::cpu {

/// Everything one kind of machine runs.
struct KernelSet {
  const char* name;
  const char* bits;  // sets that share it give the same bits
  const KernelTable* ops;
  const SelectKernels* select;
  const TileKernels* f32_tiles;
  const TileKernels* int8_tiles;
  const TileKernels* q16_tiles;
  bool int8_is_fast;  // int8 products take less time than f32 ones
};

/// The kernels this machine supports, best first; "generic" is always the last.
std::vector<const KernelSet*> supported_kernels();

/// The kernels whose bits are those of every machine, best first; "portable-generic", which needs
/// no instructions of its own, is always the last. Their products of int8 and q16 are those of the
/// instruction set, whose bits no set changes; all else sums in eight lanes, as AVX2 does.
std::vector<const KernelSet*> portable_kernels();

/// The kernels called `isa`, the best ones for "", or the best of the portable ones for "portable".
/// Fails with kUnsupported when the machine (or the build) lacks them, and with kInvalidArgument
/// when no such instruction set is known.
Result<const KernelSet*> choose_kernels(std::string_view isa);

}  // namespace moeflux::cpu
