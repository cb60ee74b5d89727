// Stands in for the folder's other sources when MOEFLUX_EMULATOR is OFF.
#include "backend/gpu/emulator/kernel_entries.h"

namespace moeflux::gpu::emulator {

bool has_kernel_entries() { return false; }

KernelEntry kernel_entry(KernelId /*id*/) { return nullptr; }

}  // namespace moeflux::gpu::emulator
