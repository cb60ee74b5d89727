#include "backend/cuda/kernel_table.h"

#include <algorithm>
#include <array>
#include <span>

namespace moeflux::gpu {

// By the .cu files of folders, in the order of their lists.
#define MF_DECLARE(folder, KERNELS) std::span<const void* const> cuda_##folder();
MF_KERNEL_FOLDERS(MF_DECLARE)
#undef MF_DECLARE

const void* cuda_kernel(KernelId id) {
  static const std::array<const void*, kKernels.size()> kTable = [] {
    std::array<const void*, kKernels.size()> table{};
    auto to = table.begin();
#define MF_ADD(folder, KERNELS) to = std::ranges::copy(cuda_##folder(), to).out;
    MF_KERNEL_FOLDERS(MF_ADD)
#undef MF_ADD
    return table;
  }();
  return kTable[static_cast<size_t>(id)];
}

}  // namespace moeflux::gpu
