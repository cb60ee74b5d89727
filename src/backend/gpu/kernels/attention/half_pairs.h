// Rows of f16 scaled by a power of two as they are, two numbers a word, for products on matrix
// units. The bits are those of the same numbers scaled in f32 and rounded to f16.
#pragma once

#include "backend/gpu/kernels/matmul/block_exponent.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// The larger of both halves of some words without their signs, and of more words.
MF_FN u32 largest_pair(u32 pair, u32 largest) { return larger_pairs(pair & 0x7fff7fffu, largest); }

/// The exponent of a row of which four lanes have the largest halves, as block_exponent() of its
/// numbers.
MF_FN u32 quad_exponent(MF_T t, u32 largest) {
  largest = larger_pairs(largest, simd_shuffle_xor(t, largest, 1u));
  largest = larger_pairs(largest, simd_shuffle_xor(t, largest, 2u));
  const u32 low = largest & 0xffffu;
  const u32 high = largest >> 16u;
  return block_exponent(as_bits(f16_to_float(static_cast<u16>(low > high ? low : high))));
}

/// into_halves() of an exponent as two factors in f16, the first in the lower half. Both are finite
/// down to a largest number of 2^-16; below that are zeros, which any factor leaves, and rows for
/// which has_half_factors() is false.
MF_FN bool has_half_factors(u32 exponent) { return exponent >= 111u || exponent == kExponentMin; }
MF_FN u32 half_factors(u32 exponent) {
  const u32 power = exponent >= 142u ? 14u : exponent < 111u ? 45u : 156u - exponent;  // + 15
  const u32 first = power < 30u ? power : 30u;
  return first << 10u | (power - first + 15u) << 26u;
}

/// Both factors for two numbers of one row, or for one of each of two rows.
struct PairFactors {
  u32 first;
  u32 second;
};
MF_FN u32 lower_halves(u32 a, u32 b) { return (a & 0xffffu) | b << 16u; }
MF_FN u32 upper_halves(u32 a, u32 b) { return a >> 16u | (b & 0xffff0000u); }
MF_FN PairFactors pair_factors(u32 a, u32 b) {
  const PairFactors factors = {lower_halves(a, b), upper_halves(a, b)};
  return factors;
}
MF_FN u32 scaled_pair(u32 pair, PairFactors factors) {
  return multiply_f16(multiply_f16(pair, factors.first), factors.second);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
