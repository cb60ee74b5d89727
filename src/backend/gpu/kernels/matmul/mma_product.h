// Products of quantised matrices on matrix units: the arithmetic that one token and many have in
// common.
//
// Codes are bytes. The activations of a block of 64 columns are integers of 16 bits times a factor
// of the block, off by 2^-15 of the block's largest at most: a byte of 256s and a byte of ones. The
// units multiply and add bytes, and their sums are exact. So the bits of a block's product depend
// on nothing but its numbers; row's scale and bias then apply to it and to the sum of the integers.
#pragma once

#include "backend/gpu/kernels/matmul/block_exponent.h"
#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Octet h of a lane's 16 columns of a block as bytes: even columns, then odd ones.
template <u32 BITS>
struct MmaCodes;
template <>
struct MmaCodes<4u> {
  static MF_FN_MEMBER W2 octet(MF_LOCAL(const u32) words, u32 h) {
    const W2 codes = {{words[h] & 0x0f0f0f0fu, words[h] >> 4u & 0x0f0f0f0fu}};
    return codes;
  }
};
template <>
struct MmaCodes<8u> {
  static MF_FN_MEMBER W2 octet(MF_LOCAL(const u32) words, u32 h) {
    const W2 codes = {{even_bytes(words[2u * h], words[2u * h + 1u]),
                       odd_bytes(words[2u * h], words[2u * h + 1u])}};
    return codes;
  }
};

/// Codes of a block, of two rows, 8 apart, two octets each, whose words a lane has at `own` and
/// `step` words further.
template <u32 BITS>
MF_FN void load_octets(MF_LOCAL(W2) octets, MF_SHARED(u32) own, u32 step) {
  MF_UNROLL
  for (u32 r = 0u; r < 2u; ++r) {
    u32 words[4];
    if (BITS == 4u) {
      const W2 two = load2(own + r * step);
      words[0] = two.v[0];
      words[1] = two.v[1];
    } else {
      const W4 four = load4(own + r * step);
      MF_UNROLL
      for (u32 k = 0u; k < 4u; ++k) words[k] = four.v[k];
    }
    MF_UNROLL
    for (u32 h = 0u; h < 2u; ++h) octets[r * 2u + h] = MmaCodes<BITS>::octet(words, h);
  }
}

/// Scales or biases of blocks `block` and the next one, in one word; past the last block its own.
/// `groups`: where those of the row begin. One in f32 is that of both blocks.
MF_FN u32 load_scale_pair(MmaMatrix m, MF_GLOBAL(const u8) from, u64 groups, u32 block, u32 last) {
  if (m.scales == kFormatF32) {
    const u32 at = block < last ? block : last;
    return MF_CAST(const u32, from)[groups + (at * kMmaBlock >> m.group_shift)];
  }
  u32 pair = 0u;
  MF_UNROLL
  for (u32 half = 0u; half < 2u; ++half) {
    const u32 at = block + half < last ? block + half : last;
    const u64 group = groups + (at * kMmaBlock >> m.group_shift);
    pair |= static_cast<u32>(MF_CAST(const u16, from)[group]) << (16u * half);
  }
  return pair;
}

/// A row's scales or biases for the 8 blocks from `block`.
MF_FN void load_row_scales(MF_LOCAL(u32) words, MmaMatrix m, MF_GLOBAL(const u8) from, u32 cols,
                           u32 row, u32 block) {
  const u64 groups = static_cast<u64>(row) * (cols >> m.group_shift);
  if (m.wide_scales != 0u) {
    const W4 eight = load4(MF_CAST(const u32, from) + (groups + block) / 2u);
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) words[i] = eight.v[i];
    return;
  }
  const u32 last = cols / kMmaBlock - 1u;
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) words[i] = load_scale_pair(m, from, groups, block + 2u * i, last);
}

MF_FN f32 mma_scale(u32 word, u32 half, u32 format) {
  const u16 bits = static_cast<u16>(word >> (16u * half));
  // All of them, and a choice: a branch would keep the products around it apart.
  const f32 as_f16 = f16_to_float(bits);
  const f32 as_bf16 = bf16_to_float(bits);
  const f32 as_half = format == kFormatBf16 ? as_bf16 : as_f16;
  return format == kFormatF32 ? as_float(word) : as_half;
}

/// A block: the product of its integers, of activations whose sum this is. Times the activations'
/// factor it is added to those before it.
MF_FN f32 mma_block(f32 product, f32 scale, f32 bias, f32 sum) {
  return mf_fma(scale, product, bias * sum);
}
MF_FN f32 add_mma_product(f32 total, f32 product, f32 scale, f32 bias, f32 sum, f32 factor) {
  return mf_fma(factor, mma_block(product, scale, bias, sum), total);
}
/// The same where codes met the 256s and the ones of activations.
MF_FN f32 add_mma_block(f32 total, i32 high, i32 low, f32 scale, f32 bias, f32 sum, f32 factor) {
  return add_mma_product(total, static_cast<f32>(high * 256 + low), scale, bias, sum, factor);
}

/// Four activations as bytes, in order or even columns in the lower half of a word, and the sum of
/// the integers.
struct MmaQuad {
  u32 high;
  u32 low;
  i32 sum;
};
MF_FN MmaQuad mma_quad(MF_LOCAL(const f32) values, f32 into, bool in_order) {
  u32 bits[4];
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) bits[i] = unit_bits(values[i], into);
  const u32 first = (bits[0] & 0xffffu) | (in_order ? bits[1] : bits[2]) << 16u;
  const u32 last = ((in_order ? bits[2] : bits[1]) & 0xffffu) | bits[3] << 16u;
  MmaQuad quad;
  quad.high = odd_bytes(first, last);
  quad.low = even_bytes(first, last) ^ 0x80808080u;
  quad.sum = static_cast<i32>(bits[0] + bits[1] + bits[2] + bits[3] - 4u * kUnitZero);
  return quad;
}

/// Eight activations as bytes of 256s and of ones: words of the first and of the last four columns
/// where they are in order, else of even and of odd ones.
struct MmaOctet {
  W2 high;
  W2 low;
  i32 sum;
};
MF_FN W2 join_quads(u32 first, u32 second, bool in_order) {
  W2 words = {{first, second}};
  if (!in_order) {
    words.v[0] = (first & 0xffffu) | second << 16u;
    words.v[1] = first >> 16u | (second & 0xffff0000u);
  }
  return words;
}
MF_FN MmaOctet mma_octet(MF_LOCAL(const f32) values, f32 into, bool in_order) {
  const MmaQuad first = mma_quad(values, into, in_order);
  const MmaQuad second = mma_quad(values + 4, into, in_order);
  MmaOctet octet;
  octet.high = join_quads(first.high, second.high, in_order);
  octet.low = join_quads(first.low, second.low, in_order);
  octet.sum = first.sum + second.sum;
  return octet;
}

/// Columns from `at`, zeros where there are none.
MF_FN void load_octet(MF_LOCAL(f32) values, MF_GLOBAL(const f32) x, u32 at, u32 cols, u32 wide) {
  if (at >= cols) {
    MF_UNROLL
    for (u32 i = 0u; i < 8u; ++i) values[i] = 0.0f;
  } else if (wide != 0u) {
    const F4 first = load4(x + at);
    const F4 second = load4(x + (at + 4u));
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      values[i] = first.v[i];
      values[i + 4u] = second.v[i];
    }
  } else {
    MF_UNROLL
    for (u32 i = 0u; i < 8u; ++i) values[i] = x[at + i];
  }
}

/// Over COUNT lanes in a row: a block's largest number by its bits.
template <u32 COUNT>
MF_FN u32 lanes_max(MF_T t, u32 bits) {
  MF_UNROLL
  for (u32 step = 1u; step < COUNT; step *= 2u) {
    const u32 other = simd_shuffle_xor(t, bits, step);
    bits = other > bits ? other : bits;
  }
  return bits;
}
/// The sum of what the lane and the one `step` from it have.
MF_FN i32 add_lane(MF_T t, i32 sum, u32 step) {
  return sum + static_cast<i32>(simd_shuffle_xor(t, static_cast<u32>(sum), step));
}
template <u32 COUNT>
MF_FN u32 largest_bits(MF_LOCAL(const f32) values) {
  u32 most = 0u;
  MF_UNROLL
  for (u32 i = 0u; i < COUNT; ++i) {
    const u32 own = size_bits(values[i]);
    most = own > most ? own : most;
  }
  return most;
}

/// Where the words of octet `o` of a block of 8 lie, of those of 256s or of ones, and how far the
/// second is from the first. A block has 4 pieces of 16 bytes of 256s, then as many of ones: even
/// columns of octets 0, 2, 4 and 6, their odd ones, and the same of octets 1, 3, 5 and 7. By halves
/// the first two are the first four columns of octets 0 to 3 and their last four. By lanes they are
/// even and odd columns of octets 0 and 1, of 2 and 3, and so on. By nibbles a piece has columns
/// 4 i, 16 + 4 i, 32 + 4 i and 48 + 4 i, four each.
struct QuantizedPlace {
  u32 within;
  u32 step;
};
MF_FN QuantizedPlace quantized_place(u32 order, u32 o) {
  const bool by_halves = (order & kRowsByHalves) != 0u;
  const bool by_lanes = (order & kRowsByLanes) != 0u;
  u32 within = by_halves ? o / 4u * 8u + o % 4u : o % 2u * 8u + o / 2u;
  if (by_lanes) within = by_halves ? o % 4u * 4u + o / 4u * 2u : o * 2u;
  const bool by_nibbles = order == kRowsByNibbles;
  if (by_nibbles) within = o % 2u * 8u + o / 2u;
  const QuantizedPlace place = {within, by_lanes && !by_nibbles ? 1u : 4u};
  return place;
}
/// Stores a block's sums, of a quarter, of a half or of all, by its `lane` of so many that have a
/// part each.
MF_FN void store_quantized_sums(MF_GLOBAL(f32) sums, u64 block, bool by_halves, u32 lane, u32 lanes,
                                i32 quarter, i32 half, i32 sum, f32 factor) {
  if (!by_halves) {
    if (lane != 0u) return;
    sums[block * 2u] = static_cast<f32>(sum);
    sums[block * 2u + 1u] = factor;
    return;
  }
  MF_GLOBAL(f32) to = sums + block * kGgmlSumWords;
  if (lane % (lanes / 4u) == 0u) {
    to[kGgmlSumQuarters + lane / (lanes / 4u)] = static_cast<f32>(quarter);
  }
  if (lane % (lanes / 2u) == 0u) to[lane / (lanes / 2u)] = static_cast<f32>(half);
  if (lane == 0u) to[kGgmlSumFactor] = factor;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
