// Kernels that carry a few bytes themselves. CUDA's alone: other platforms share the host's memory.
#include <cuda_runtime_api.h>

#include "backend/cuda/small_copy_kernels.h"
#include "backend/gpu/dialect/cuda.h"

namespace moeflux::gpu {
namespace {

__global__ void small_write(const SmallWriteParams p) {
  await_inputs(this_thread());
  for (u32 i = threadIdx.x; i < p.bytes; i += blockDim.x) {
    p.to[i] = static_cast<std::byte>(p.words[i / 4] >> (i % 4 * 8));
  }
}

__global__ void small_read(const SmallReadParams p) {
  await_inputs(this_thread());
  for (u32 i = threadIdx.x; i * 4 < p.bytes; i += blockDim.x) {
    u64 word = kArrived;
    MF_UNROLL
    for (u32 b = 0; b < 4; ++b) {
      const u32 at = i * 4 + b;
      if (at < p.bytes) word |= static_cast<u64>(p.from[at]) << (b * 8);
    }
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p.to + i), "l"(word) : "memory");
  }
}

}  // namespace

const void* small_write_kernel() { return reinterpret_cast<const void*>(&small_write); }
const void* small_read_kernel() { return reinterpret_cast<const void*>(&small_read); }

}  // namespace moeflux::gpu
