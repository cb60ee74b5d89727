// All kernels, compiled for the host.
#include "backend/gpu/emulator/kernel_entries.h"

#include "backend/gpu/kernels/all.h"

namespace moeflux::gpu::emulator {

KernelEntry kernel_entry(KernelId id) {
  static constexpr KernelEntry kEntries[] = {
#define MF_ENTRY(name, bindings, Params) &Unpack<&kernels::name>::call,
      MOEFLUX_GPU_KERNELS(MF_ENTRY)
#undef MF_ENTRY
  };
  return kEntries[static_cast<size_t>(id)];
}

}  // namespace moeflux::gpu::emulator
