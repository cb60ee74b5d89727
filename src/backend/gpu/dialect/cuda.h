// The kernel dialect in CUDA C++. Included by the .cu file that compiles kernels/*.h; compile with
// -fmad=false: kernels fuse where they say so, and a token's bits must not depend on what the
// compiler fused in one variant of a kernel and not in another.
//
// Vocabulary (the same in host.h and metal.h):
//   MF_KERNEL(name, Params, MF_READ(0, T, a), MF_WRITE(1, T, out)) { MF_THREAD; ... }
//     defines a kernel; inside, `t` is the thread and `p` the parameters.
//   MF_GLOBAL(T), MF_SHARED(T), MF_LOCAL(T): pointers to device, shared and thread memory.
//   MF_READ binds what the kernel may overwrite through another binding, MF_CONST what nobody
//     writes.
//   MF_FN marks a function of kernels; it takes `MF_T t` first if it needs the thread.
//   t.index, t.threads, t.lane, t.simd, t.simds, t.group.x/y/z: where the thread is.
#pragma once

#include "backend/gpu/dialect/types.h"

#define MF_FN static __device__ __forceinline__
#define MF_FN_MEMBER __device__ __forceinline__
#define MF_T const ::moeflux::gpu::Thread&
#define MF_GLOBAL(T) T*
#define MF_SHARED(T) T*
#define MF_LOCAL(T) T*
#define MF_PARAMS(P) const P&
#define MF_READ(index, T, name) const T* name
#define MF_CONST(index, T, name) const T* __restrict__ name
#define MF_WRITE(index, T, name) T* name
#define MF_KERNEL(name, P, ...) __global__ void name(const P p, __VA_ARGS__)
#define MF_THREAD                                                 \
  const ::moeflux::gpu::Thread t = ::moeflux::gpu::this_thread(); \
  static_cast<void>(p)
#define MF_UNROLL _Pragma("unroll")
#define MF_CAST(T, pointer) reinterpret_cast<T*>(pointer)
#define MF_AT(t, T, address) (static_cast<void>(t), reinterpret_cast<T*>(address))
#define MF_SHARED_AT(t, T, offset_bytes) reinterpret_cast<T*>((t).shared + (offset_bytes))

namespace moeflux {
namespace gpu {

struct Thread {
  u32 index, threads, lane, simd, simds;
  uint3 group;
  u8* shared;
};

MF_FN Thread this_thread() {
  extern __shared__ __align__(16) u8 dynamic_shared[];
  return {threadIdx.x,      blockDim.x, threadIdx.x % 32u, threadIdx.x / 32u,
          blockDim.x / 32u, blockIdx,   dynamic_shared};
}

struct F4 {
  f32 v[4];
};
struct W4 {
  u32 v[4];
};

MF_FN void barrier(MF_T) { __syncthreads(); }
MF_FN void simd_barrier(MF_T) { __syncwarp(); }
MF_FN f32 simd_shuffle(MF_T, f32 value, u32 lane) { return __shfl_sync(~0u, value, lane); }
MF_FN u32 simd_shuffle(MF_T, u32 value, u32 lane) { return __shfl_sync(~0u, value, lane); }
MF_FN f32 simd_shuffle_xor(MF_T, f32 value, u32 mask) { return __shfl_xor_sync(~0u, value, mask); }
MF_FN u32 simd_shuffle_xor(MF_T, u32 value, u32 mask) { return __shfl_xor_sync(~0u, value, mask); }
MF_FN u32 simd_ballot(MF_T, bool value) { return __ballot_sync(~0u, value); }
MF_FN u32 count_bits(u32 bits) { return static_cast<u32>(__popc(bits)); }

MF_FN f32 as_float(u32 bits) { return __uint_as_float(bits); }
MF_FN f32 f16_to_float(u16 bits) {
  f32 value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

/// Four elements from a 16-byte boundary.
MF_FN F4 load4(const f32* from) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  return {{v.x, v.y, v.z, v.w}};
}
MF_FN W4 load4(const u32* from) {
  const uint4 v = *reinterpret_cast<const uint4*>(from);
  return {{v.x, v.y, v.z, v.w}};
}
MF_FN void store4(f32* to, F4 value) {
  *reinterpret_cast<float4*>(to) = make_float4(value.v[0], value.v[1], value.v[2], value.v[3]);
}

MF_FN f32 mf_fma(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }
MF_FN f32 mf_exp(f32 x) { return expf(x); }
MF_FN f32 mf_log1p(f32 x) { return log1pf(x); }
MF_FN f32 mf_tanh(f32 x) { return tanhf(x); }
MF_FN f32 mf_sin(f32 x) { return sinf(x); }
MF_FN f32 mf_cos(f32 x) { return cosf(x); }
MF_FN f32 mf_sqrt(f32 x) { return sqrtf(x); }
MF_FN f32 mf_min(f32 a, f32 b) { return fminf(a, b); }
MF_FN f32 mf_max(f32 a, f32 b) { return fmaxf(a, b); }
MF_FN f32 mf_infinity() { return __int_as_float(0x7f800000); }

}  // namespace gpu
}  // namespace moeflux

#include "backend/gpu/dialect/common.h"
