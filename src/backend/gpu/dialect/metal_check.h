// Enough of the Metal Shading Language for clang to check kernel text as C++14 where there is no
// Metal compiler. Device and threadgroup memory are real address spaces, so a pointer without its
// qualifier, or with the wrong one, does not compile. Nothing here is ever run.
#pragma once

#define device __attribute__((address_space(1)))
#define threadgroup __attribute__((address_space(3)))
#define constant const
#define thread
#define kernel __attribute__((used))

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
struct half {
  ushort bits;
  explicit operator float() const;
};
typedef uint uint3 __attribute__((ext_vector_type(3)));
typedef uint uint2 __attribute__((ext_vector_type(2)));
typedef uint uint4 __attribute__((ext_vector_type(4)));
typedef float float4 __attribute__((ext_vector_type(4)));

template <typename To, typename From>
To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type keeps every bit");
  return __builtin_bit_cast(To, from);
}

namespace metal {

enum class mem_flags { mem_none, mem_device, mem_threadgroup };
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
template <typename T>
T simd_shuffle(T value, ushort lane);
template <typename T>
T simd_shuffle_xor(T value, ushort mask);
struct simd_vote {
  typedef ulong vote_t;
  explicit operator vote_t() const;
};
simd_vote simd_ballot(bool value);
uint simd_max(uint value);
uint simd_min(uint value);
uint popcount(uint bits);
float fma(float a, float b, float c);

namespace precise {
float exp(float x);
float exp2(float x);
float log(float x);
float tanh(float x);
float sin(float x);
float cos(float x);
float sqrt(float x);
float fmin(float a, float b);
float fmax(float a, float b);
}  // namespace precise
}  // namespace metal
