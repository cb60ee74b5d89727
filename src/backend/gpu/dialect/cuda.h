// The kernel dialect in CUDA C++. Included by the .cu file that compiles kernels/*.h; compile with
// -fmad=false: kernels fuse where they say so, and a token's bits must not depend on what the
// compiler fused in one variant of a kernel and not in another.
//
// Vocabulary (the same in host.h and metal.h):
//   MF_KERNEL(name, Params, MF_READ(0, T, a), MF_WRITE(1, T, out)) { MF_THREAD; ... }
//     defines a kernel; inside, `t` is the thread and `p` the parameters.
//   MF_FITS(threads, groups) before it: so many groups of so many threads run on a multiprocessor.
//   MF_GLOBAL(T), MF_SHARED(T), MF_LOCAL(T): pointers to device, shared and thread memory.
//   MF_READ binds what the kernel may overwrite through another binding, MF_CONST what nobody
//     writes.
//   MF_THREAD waits for the kernels before; MF_THREAD_EARLY leaves that to await_inputs(), which
//     must come before the first access to what another kernel writes or reads: only MF_CONST may
//     be read earlier, and, by kernels that reads_early() names, what the kernels before the last
//     one wrote.
//   MF_UNROLL and MF_ROLLED before a loop: always, never.
//   MF_FN marks a function of kernels; it takes `MF_T t` first if it needs the thread.
//   MF_FN_APART marks one that is too large to be copied to where it is called.
//   MF_TABLE(T, name) = {...} defines an array of constants, to be used in this file only.
//   t.index, t.threads, t.lane, t.simd, t.simds, t.group.x/y/z: where the thread is.
#pragma once

#include "backend/gpu/dialect/types.h"

#define MF_FN static __device__ __forceinline__
#define MF_FN_APART static __device__ __noinline__
#define MF_TABLE(T, name) static __device__ const T name[]
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
#define MF_FITS(threads, groups) __launch_bounds__(threads, groups)
#define MF_THREAD_EARLY                                           \
  const ::moeflux::gpu::Thread t = ::moeflux::gpu::this_thread(); \
  static_cast<void>(p)
#define MF_THREAD  \
  MF_THREAD_EARLY; \
  ::moeflux::gpu::await_inputs(t)
#define MF_UNROLL _Pragma("unroll")
#define MF_ROLLED _Pragma("unroll 1")
#define MF_CAST(T, pointer) reinterpret_cast<T*>(pointer)
#define MF_AT(t, T, address) (static_cast<void>(t), ::moeflux::gpu::global_at<T>(address))
#define MF_ADDRESS_OF(pointer) reinterpret_cast<u64>(pointer)
#define MF_HAS_MATRIX_UNITS 1
#define MF_HAS_MATRIX_MULTIPLY 1
#define MF_HAS_ASYNC_COPIES 1
// A multiprocessor has more than 100 KiB of shared memory.
#if !defined(__CUDA_ARCH__) || \
    !(__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
#define MF_HAS_LARGE_SHARED 1
#endif
#define MF_SHARED_AT(t, T, offset_bytes) reinterpret_cast<T*>((t).shared + (offset_bytes))

namespace moeflux {
namespace gpu {

struct Thread {
  u32 index, threads, lane, simd, simds;
  uint3 group;
  u8* shared;
};

MF_FN Thread this_thread() {
  extern __shared__ __align__(1024) u8 dynamic_shared[];  // as wgmma wants it
  return {threadIdx.x,      blockDim.x, threadIdx.x % 32u, threadIdx.x / 32u,
          blockDim.x / 32u, blockIdx,   dynamic_shared};
}

/// An address of device memory; says so, for loads that need not find out. The compiler must not
/// see where the number comes from: that of CUDA 13.0 (13.0.88) follows it through loops without
/// end.
template <typename T>
MF_FN T* global_at(u64 address) {
  size_t number = static_cast<size_t>(address);
  asm("" : "+l"(number));
  return static_cast<T*>(__cvta_global_to_generic(number));
}

struct F4 {
  f32 v[4];
};
struct W4 {
  u32 v[4];
};
struct W2 {
  u32 v[2];
};

/// Returns when the kernel before has finished and its results can be read. Then it lets the next
/// kernel start, if that is one of reads_early(), which may read before this what the kernels
/// before the last one wrote. Other kernels may start earlier.
MF_FN void await_inputs(MF_T) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// The same without the next one, which let_next_start() lets start then.
MF_FN void await_launch(MF_T) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets the next kernel start up to its await_inputs() before this one has come to its own: only
/// where the next one reads there what not even the kernel before this one writes.
MF_FN void let_next_start(MF_T) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Asks for the cache line of an address, which may be anything: nothing is read. So it may come
/// before await_inputs() even where another kernel still writes.
MF_FN void prefetch(MF_T, const f32* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

MF_FN void barrier(MF_T) { __syncthreads(); }
MF_FN void simd_barrier(MF_T) { __syncwarp(); }
MF_FN f32 simd_shuffle(MF_T, f32 value, u32 lane) { return __shfl_sync(~0u, value, lane); }
MF_FN u32 simd_shuffle(MF_T, u32 value, u32 lane) { return __shfl_sync(~0u, value, lane); }
MF_FN f32 simd_shuffle_xor(MF_T, f32 value, u32 mask) { return __shfl_xor_sync(~0u, value, mask); }
MF_FN u32 simd_shuffle_xor(MF_T, u32 value, u32 mask) { return __shfl_xor_sync(~0u, value, mask); }
MF_FN u32 simd_ballot(MF_T, bool value) { return __ballot_sync(~0u, value); }
/// The highest and the lowest number of the SIMD group.
MF_FN u32 simd_max(MF_T, u32 value) { return __reduce_max_sync(~0u, value); }
MF_FN u32 simd_min(MF_T, u32 value) { return __reduce_min_sync(~0u, value); }
MF_FN u32 count_bits(u32 bits) { return static_cast<u32>(__popc(bits)); }

MF_FN f32 as_float(u32 bits) { return __uint_as_float(bits); }
MF_FN u32 as_bits(f32 value) { return __float_as_uint(value); }
MF_FN f32 f16_to_float(u16 bits) {
  f32 value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

#if __CUDA_ARCH__ >= 890
#define MF_HAS_E4M3 1
/// Four numbers of e4m3, in order.
MF_FN void e4m3_quad(f32* values, u32 codes) {
  u32 pairs[2];
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %2;"
      " cvt.rn.f16x2.e4m3x2 %0, low; cvt.rn.f16x2.e4m3x2 %1, high;}"
      : "=r"(pairs[0]), "=r"(pairs[1])
      : "r"(codes));
  MF_UNROLL
  for (u32 k = 0u; k < 4u; ++k) {
    values[k] = f16_to_float(static_cast<u16>(pairs[k / 2u] >> (16u * (k % 2u))));
  }
}
#endif

/// Four elements from a 16-byte boundary.
MF_FN F4 load4(const f32* from) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  return {{v.x, v.y, v.z, v.w}};
}
MF_FN W4 load4(const u32* from) {
  const uint4 v = *reinterpret_cast<const uint4*>(from);
  return {{v.x, v.y, v.z, v.w}};
}
MF_FN W2 load2(const u32* from) {
  const uint2 v = *reinterpret_cast<const uint2*>(from);
  return {{v.x, v.y}};
}
/// A byte of shared memory, and two bytes from an even one.
MF_FN u32 shared_byte(MF_T t, u32 at) { return t.shared[at]; }
MF_FN u32 shared_half(MF_T t, u32 at) { return *reinterpret_cast<const u16*>(t.shared + at); }
MF_FN void store4(u32* to, W4 value) {
  *reinterpret_cast<uint4*>(to) = make_uint4(value.v[0], value.v[1], value.v[2], value.v[3]);
}
MF_FN void store2(u32* to, W2 value) {
  *reinterpret_cast<uint2*>(to) = make_uint2(value.v[0], value.v[1]);
}
MF_FN void store4(f32* to, F4 value) {
  *reinterpret_cast<float4*>(to) = make_float4(value.v[0], value.v[1], value.v[2], value.v[3]);
}

/// A store that whoever looks on, the host included, sees whole or not at all, and after all that
/// was stored before it, launches before this one included.
MF_FN void store_whole(u64* to, u64 value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

/// Copies from device to shared memory that are under way until copies_wait() and a barrier; four
/// words from and to a 16-byte boundary, or one.
MF_FN void copy_async4(MF_T, u32* to, const u32* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<u32>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}
/// Four zeros instead, where there is nothing to copy.
MF_FN void copy_async4_if(MF_T, u32* to, const u32* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<u32>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(exists ? 16u : 0u)
               : "memory");
}
MF_FN void copy_async1(MF_T, u32* to, const u32* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(
                   static_cast<u32>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}
/// Ends a batch of this thread's copies, which may be empty.
MF_FN void copies_commit(MF_T) { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Returns when all but the latest PENDING batches have arrived.
template <u32 PENDING>
MF_FN void copies_wait(MF_T) {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

/// Two numbers rounded to f16, to nearest even; `low` in the lower half.
MF_FN u32 pack_f16(f32 low, f32 high) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
/// The products of two pairs of f16, each rounded to nearest even.
#define MF_HAS_F16_PAIRS
MF_FN u32 multiply_f16(u32 a, u32 b) {
  u32 product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
/// The larger lower half and the larger upper half of two words.
MF_FN u32 larger_pairs(u32 a, u32 b) { return __vmaxu2(a, b); }
/// Bytes 0 and 2 of both words, and bytes 1 and 3.
MF_FN u32 even_bytes(u32 low, u32 high) { return __byte_perm(low, high, 0x6420u); }
MF_FN u32 odd_bytes(u32 low, u32 high) { return __byte_perm(low, high, 0x7531u); }
/// Looks up the halves of four bytes: each becomes that byte of a table. Low halves, then high
/// ones.
/// `value`, without what the compiler knows of it: it is computed once, where this is, and not
/// again at each use.
MF_FN u32 settled(u32 value) {
  asm("" : "+r"(value));
  return value;
}
/// __byte_perm() without its mask: an index beyond 7 gives the highest bit of the byte, eight
/// times.
MF_FN u32 permute_bytes(u32 first, u32 second, u32 indices) {
  u32 bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(first), "r"(second), "r"(indices));
  return bytes;
}
MF_FN W2 look_up_halves(W4 table, u32 bytes) {
  const u32 which = bytes & 0x77777777u;
  const u32 upper = (bytes >> 1u & 0x44444444u) | 0x32103210u;  // from which eight of the table
  u32 in_order[2];
  MF_UNROLL
  for (u32 i = 0u; i < 2u; ++i) {
    const u32 low = permute_bytes(table.v[0], table.v[1], which >> (16u * i));
    const u32 high = permute_bytes(table.v[2], table.v[3], which >> (16u * i));
    in_order[i] = permute_bytes(low, high, upper >> (16u * i));
  }
  const W2 looked_up = {
      {even_bytes(in_order[0], in_order[1]), odd_bytes(in_order[0], in_order[1])}};
  return looked_up;
}
/// The same of a table of eight, by the lowest four numbers of 4 bits each.
MF_FN u32 look_up_eight(W2 table, u32 numbers) {
  return __byte_perm(table.v[0], table.v[1], numbers);
}
/// The same by numbers whose highest bit makes the byte 0. Bytes of the table are below 128.
MF_FN u32 look_up_positive(W2 table, u32 numbers) {
  return permute_bytes(table.v[0], table.v[1], numbers);  // copies of a byte's highest bit
}
/// 255 for each byte whose highest bit is set, or 0.
MF_FN u32 signs_of_bytes(u32 word) { return permute_bytes(word, word, 0xba98u); }
/// c += a b on the matrix units, for 16 x 16 by 16 x 8 numbers in f16. Lane 4 g + t holds
/// - a: rows g, g + 8, g, g + 8 at columns 2 t and 2 t + 1 (8 more in the last two);
/// - b: column g at rows 2 t, 2 t + 1 and, in b1, 8 more;
/// - c: row g at columns 2 t, 2 t + 1, then row g + 8.
MF_FN void matrix_multiply_add_f16(MF_T, f32* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
/// The same for 16 x 32 unsigned bytes by 32 x 8 signed ones, whose sums are exact. A word of a
/// lane has four columns of a, from 4 t on, or four rows of b; the other words lie 16 further where
/// it was 8.
MF_FN void matrix_multiply_add_bytes(MF_T, i32* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// The same of signed bytes by signed ones.
MF_FN void matrix_multiply_add_signed_bytes(MF_T, i32* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
                                            u32 b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// Before a barrier: lets matrix units read what this thread's copies brought.
MF_FN void copies_publish(MF_T) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

MF_FN f32 mf_fma(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }
MF_FN f32 mf_exp(f32 x) { return expf(x); }
MF_FN f32 mf_exp2(f32 x) { return exp2f(x); }
/// The same where the result is a normal number.
MF_FN f32 mf_exp2_normal(f32 x) {
  f32 result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
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

// clang-format off
#include "backend/gpu/dialect/cuda_team.h"
#include "backend/gpu/dialect/common.h"
// clang-format on
