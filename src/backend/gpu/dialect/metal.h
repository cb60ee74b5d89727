// The kernel dialect in the Metal Shading Language. Becomes the head of the text that is compiled
// on the machine; cuda.h lists the vocabulary. Compile with fast math off: kernels fuse where they
// say so, and rely on infinities.
//
// Bindings are buffers by their index, parameters are buffer 30, shared memory is threadgroup 0.
// Functions are found by their qualified names: "moeflux::gpu::kernels::copy_rows".
#pragma once

#if defined(MOEFLUX_METAL_CHECK)
#include "backend/gpu/dialect/metal_check.h"
#define MF_SLOT(attribute)
#else
#include <metal_stdlib>
#define MF_SLOT(attribute) [[attribute]]
#endif

#include "backend/gpu/dialect/types.h"

#define MF_FN static inline
#define MF_FN_APART static __attribute__((noinline))
#define MF_TABLE(T, name) constant T name[]
#define MF_FN_MEMBER
#define MF_T const thread ::moeflux::gpu::Thread&
#define MF_GLOBAL(T) device T*
#define MF_SHARED(T) threadgroup T*
#define MF_LOCAL(T) thread T*
#define MF_PARAMS(P) constant P&
#define MF_READ(index, T, name) device const T* name MF_SLOT(buffer(index))
#define MF_CONST(index, T, name) device const T* name MF_SLOT(buffer(index))
#define MF_WRITE(index, T, name) device T* name MF_SLOT(buffer(index))
#define MF_KERNEL(name, P, ...)                                          \
  kernel void name(__VA_ARGS__, constant P& p MF_SLOT(buffer(30)),       \
                   threadgroup uchar* mf_shared MF_SLOT(threadgroup(0)), \
                   uint3 mf_group MF_SLOT(threadgroup_position_in_grid), \
                   uint mf_index MF_SLOT(thread_index_in_threadgroup),   \
                   uint3 mf_threads MF_SLOT(threads_per_threadgroup))
#define MF_FITS(threads, groups)
#define MF_THREAD_EARLY                                                                 \
  const ::moeflux::gpu::Thread t = {mf_index,       mf_threads.x,       mf_index % 32u, \
                                    mf_index / 32u, mf_threads.x / 32u, mf_group,       \
                                    mf_shared};                                         \
  static_cast<void>(p)
#define MF_THREAD MF_THREAD_EARLY
#define MF_UNROLL _Pragma("clang loop unroll(full)")
#define MF_ROLLED _Pragma("clang loop unroll(disable)")
#define MF_CAST(T, pointer) reinterpret_cast<device T*>(pointer)
#define MF_AT(t, T, address) (static_cast<void>(t), reinterpret_cast<device T*>(address))
#define MF_ADDRESS_OF(pointer) reinterpret_cast<u64>(pointer)
#define MF_SHARED_AT(t, T, offset_bytes) \
  reinterpret_cast<threadgroup T*>((t).shared + (offset_bytes))

namespace moeflux {
namespace gpu {

struct Thread {
  u32 index, threads, lane, simd, simds;
  uint3 group;
  threadgroup u8* shared;
};

struct F4 {
  f32 v[4];
};
struct W4 {
  u32 v[4];
};
struct W2 {
  u32 v[2];
};

MF_FN void await_inputs(MF_T) {}
MF_FN void await_launch(MF_T) {}
MF_FN void let_next_start(MF_T) {}
MF_FN void prefetch(MF_T, device const f32*) {}

MF_FN void barrier(MF_T) { metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup); }
MF_FN void simd_barrier(MF_T) { metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup); }
MF_FN f32 simd_shuffle(MF_T, f32 value, u32 lane) {
  return metal::simd_shuffle(value, static_cast<ushort>(lane));
}
MF_FN u32 simd_shuffle(MF_T, u32 value, u32 lane) {
  return metal::simd_shuffle(value, static_cast<ushort>(lane));
}
MF_FN f32 simd_shuffle_xor(MF_T, f32 value, u32 mask) {
  return metal::simd_shuffle_xor(value, static_cast<ushort>(mask));
}
MF_FN u32 simd_shuffle_xor(MF_T, u32 value, u32 mask) {
  return metal::simd_shuffle_xor(value, static_cast<ushort>(mask));
}
MF_FN u32 simd_ballot(MF_T, bool value) {
  return static_cast<u32>(static_cast<metal::simd_vote::vote_t>(metal::simd_ballot(value)));
}
MF_FN u32 simd_max(MF_T, u32 value) { return metal::simd_max(value); }
MF_FN u32 simd_min(MF_T, u32 value) { return metal::simd_min(value); }
MF_FN u32 count_bits(u32 bits) { return metal::popcount(bits); }

MF_FN f32 as_float(u32 bits) { return as_type<f32>(bits); }
MF_FN u32 as_bits(f32 value) { return as_type<u32>(value); }
MF_FN f32 f16_to_float(u16 bits) { return static_cast<f32>(as_type<half>(bits)); }

/// Four elements from a 16-byte boundary.
MF_FN F4 load4(device const f32* from) {
  const float4 v = *reinterpret_cast<device const float4*>(from);
  return F4{{v.x, v.y, v.z, v.w}};
}
MF_FN W4 load4(device const u32* from) {
  const uint4 v = *reinterpret_cast<device const uint4*>(from);
  return W4{{v.x, v.y, v.z, v.w}};
}
MF_FN F4 load4(threadgroup const f32* from) {
  const float4 v = *reinterpret_cast<threadgroup const float4*>(from);
  return F4{{v.x, v.y, v.z, v.w}};
}
MF_FN W2 load2(device const u32* from) {
  const uint2 v = *reinterpret_cast<device const uint2*>(from);
  return W2{{v.x, v.y}};
}
MF_FN W2 load2(threadgroup const u32* from) {
  const uint2 v = *reinterpret_cast<threadgroup const uint2*>(from);
  return W2{{v.x, v.y}};
}
MF_FN u32 shared_byte(MF_T t, u32 at) { return t.shared[at]; }
MF_FN u32 shared_half(MF_T t, u32 at) {
  return *reinterpret_cast<threadgroup const u16*>(t.shared + at);
}
MF_FN W4 load4(threadgroup const u32* from) {
  const uint4 v = *reinterpret_cast<threadgroup const uint4*>(from);
  return W4{{v.x, v.y, v.z, v.w}};
}
MF_FN uint4 as_vector(W4 value) {
  uint4 v;
  v.x = value.v[0];
  v.y = value.v[1];
  v.z = value.v[2];
  v.w = value.v[3];
  return v;
}
MF_FN void store4(threadgroup u32* to, W4 value) {
  *reinterpret_cast<threadgroup uint4*>(to) = as_vector(value);
}
MF_FN void store4(device u32* to, W4 value) {
  *reinterpret_cast<device uint4*>(to) = as_vector(value);
}
MF_FN uint2 as_vector(W2 value) {
  uint2 v;
  v.x = value.v[0];
  v.y = value.v[1];
  return v;
}
MF_FN void store2(threadgroup u32* to, W2 value) {
  *reinterpret_cast<threadgroup uint2*>(to) = as_vector(value);
}
MF_FN void store2(device u32* to, W2 value) {
  *reinterpret_cast<device uint2*>(to) = as_vector(value);
}
MF_FN float4 as_vector(F4 value) {
  float4 v;
  v.x = value.v[0];
  v.y = value.v[1];
  v.z = value.v[2];
  v.w = value.v[3];
  return v;
}
MF_FN void store4(threadgroup f32* to, F4 value) {
  *reinterpret_cast<threadgroup float4*>(to) = as_vector(value);
}
MF_FN void store4(device f32* to, F4 value) {
  *reinterpret_cast<device float4*>(to) = as_vector(value);
}
MF_FN void store_whole(device u64* to, u64 value) { *to = value; }

MF_FN f32 mf_fma(f32 a, f32 b, f32 c) { return metal::fma(a, b, c); }
MF_FN f32 mf_exp(f32 x) { return metal::precise::exp(x); }
MF_FN f32 mf_exp2(f32 x) { return metal::precise::exp2(x); }
MF_FN f32 mf_exp2_normal(f32 x) { return mf_exp2(x); }
/// log(1 + x) with the rounding of 1 + x taken back: the language has none of its own.
MF_FN f32 mf_log1p(f32 x) {
  const f32 sum = 1.0f + x;
  return sum == 1.0f ? x : metal::precise::log(sum) * (x / (sum - 1.0f));
}
MF_FN f32 mf_tanh(f32 x) { return metal::precise::tanh(x); }
MF_FN f32 mf_sin(f32 x) { return metal::precise::sin(x); }
MF_FN f32 mf_cos(f32 x) { return metal::precise::cos(x); }
MF_FN f32 mf_sqrt(f32 x) { return metal::precise::sqrt(x); }
MF_FN f32 mf_min(f32 a, f32 b) { return metal::precise::fmin(a, b); }
MF_FN f32 mf_max(f32 a, f32 b) { return metal::precise::fmax(a, b); }
MF_FN f32 mf_infinity() { return as_type<f32>(0x7f800000u); }

}  // namespace gpu
}  // namespace moeflux

#include "backend/gpu/dialect/common.h"
