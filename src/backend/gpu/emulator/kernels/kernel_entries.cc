#include "backend/gpu/emulator/kernel_entries.h"

#include <algorithm>
#include <array>

namespace moeflux::gpu::emulator {

#define MF_DECLARE(folder, KERNELS) std::span<const KernelEntry> folder##_entries();
MF_KERNEL_FOLDERS(MF_DECLARE)
#undef MF_DECLARE

bool has_kernel_entries() { return true; }

KernelEntry kernel_entry(KernelId id) {
  static const std::array<KernelEntry, kKernels.size()> kTable = [] {
    std::array<KernelEntry, kKernels.size()> table{};
    auto to = table.begin();
#define MF_ADD(folder, KERNELS) to = std::ranges::copy(folder##_entries(), to).out;
    MF_KERNEL_FOLDERS(MF_ADD)
#undef MF_ADD
    return table;
  }();
  return kTable[static_cast<size_t>(id)];
}

}  // namespace moeflux::gpu::emulator
