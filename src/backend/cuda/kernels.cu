// All kernels, compiled by nvcc from the one kernel source, and the table through which the host
// launches them. The build passes -fmad=false: see dialect/cuda.h.
#include <cuda_runtime_api.h>

#include "backend/cuda/kernel_table.h"
#include "backend/gpu/dialect/cuda.h"
#include "backend/gpu/kernels/all.h"

namespace moeflux::gpu {

const void* cuda_kernel(KernelId id) {
  static const void* const kTable[] = {
#define MF_ENTRY(name, bindings, Params) reinterpret_cast<const void*>(&kernels::name),
      MOEFLUX_GPU_KERNELS(MF_ENTRY)
#undef MF_ENTRY
  };
  return kTable[static_cast<size_t>(id)];
}

}  // namespace moeflux::gpu
