// Products of quantised matrices on matrix units: what one token and many have in common.
//
// Codes are small integers, exact in bf16; an f32 activation is the sum of two bf16, off by 2^-17
// of it at most. A block of 64 columns is multiplied in 16 x 8 x 16 steps, the two halves of the
// activations on their own; their sum takes the row's scale, and the sum of the activations its
// bias. So a token's bits are the same in whatever column of a tile it stands.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// Pair i of column octet h among a lane's 16 columns of a block: columns i and i + 4, as bf16.
template <u32 BITS>
struct UnitCodes;
template <>
struct UnitCodes<4u> {
  enum : u32 { kOffset = 8u };  // codes are taken less this
  static MF_FN_MEMBER u32 pair(MF_LOCAL(const u32) words, u32 h, u32 i) {
    return codes4_to_bf16(words[h] >> (4u * i));
  }
};
template <>
struct UnitCodes<8u> {
  enum : u32 { kOffset = 128u };
  static MF_FN_MEMBER u32 pair(MF_LOCAL(const u32) words, u32 h, u32 i) {
    return codes8_to_bf16(words[2u * h], words[2u * h + 1u], i);
  }
};

/// A lane's codes of a block: 16 columns of row `low`, then of row `high`.
template <u32 BITS>
MF_FN void load_unit_codes(MF_T t, MF_LOCAL(u32) words, MF_GLOBAL(const u32) codes, u32 cols,
                           u32 low, u32 high, u32 block, u32 wide) {
  const u64 row_words = cols / 32u * BITS;
  const u32 within = block * (2u * BITS) + (t.lane & 3u) * (BITS / 2u);
  MF_UNROLL
  for (u32 r = 0u; r < 2u; ++r) {
    MF_GLOBAL(const u32) from = codes + ((r == 0u ? low : high) * row_words + within);
    if (wide == 0u) {
      MF_UNROLL
      for (u32 i = 0u; i < BITS / 2u; ++i) words[r * (BITS / 2u) + i] = from[i];
    } else if (BITS == 4u) {
      const W2 two = load2(from);
      words[r * (BITS / 2u)] = two.v[0];
      words[r * (BITS / 2u) + 1u] = two.v[1];
    } else {
      const W4 four = load4(from);
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) words[r * (BITS / 2u) + i % (BITS / 2u)] = four.v[i];
    }
  }
}

/// Of the 8 blocks from `block`, two a word: lane 0 of four has the scales of row `low`, the next
/// its biases, then those of row `high`.
MF_FN void load_unit_scales(MF_T t, MF_LOCAL(u32) words, UnitMatrix m, MF_GLOBAL(const u8) scales,
                            MF_GLOBAL(const u8) biases, u32 cols, u32 low, u32 high, u32 block) {
  MF_GLOBAL(const u8) from = (t.lane & 1u) == 0u ? scales : biases;
  const u64 groups = static_cast<u64>((t.lane & 2u) == 0u ? low : high) * (cols >> m.group_shift);
  if (m.wide_scales != 0u) {
    const W4 eight = load4(MF_CAST(const u32, from) + (groups + block) / 2u);
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) words[i] = eight.v[i];
    return;
  }
  const u32 last = cols / kUnitBlock - 1u;
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) {
    u32 pair = 0u;
    MF_UNROLL
    for (u32 half = 0u; half < 2u; ++half) {
      const u32 at = block + 2u * i + half < last ? block + 2u * i + half : last;
      const u64 group = groups + (at * kUnitBlock >> m.group_shift);
      pair |= static_cast<u32>(MF_CAST(const u16, from)[group]) << (16u * half);
    }
    words[i] = pair;
  }
}

MF_FN f32 unit_scale(u32 word, u32 half, u32 format) {
  const u16 bits = static_cast<u16>(word >> (16u * half));
  // Both, and a choice: a branch would keep the products around it apart.
  const f32 as_f16 = f16_to_float(bits);
  const f32 as_bf16 = bf16_to_float(bits);
  return format == kFormatBf16 ? as_bf16 : as_f16;
}

/// Scale and bias of two rows for one block.
struct UnitScales {
  f32 scale[2];
  f32 bias[2];
};

template <u32 BITS>
MF_FN UnitScales unit_scales(MF_T t, MF_LOCAL(const u32) words, u32 block, u32 format) {
  const u32 own = words[block / 2u];
  UnitScales s;
  MF_UNROLL
  for (u32 r = 0u; r < 2u; ++r) {
    const u32 lane = (t.lane & 28u) + 2u * r;
    s.scale[r] = unit_scale(simd_shuffle(t, own, lane), block % 2u, format);
    const f32 bias = unit_scale(simd_shuffle(t, own, lane + 1u), block % 2u, format);
    s.bias[r] = mf_fma(static_cast<f32>(UnitCodes<BITS>::kOffset), s.scale[r], bias);
  }
  return s;
}

/// Adds a block's product, and that of the bias with the sum of the activations.
MF_FN f32 add_unit_block(f32 total, f32 product, f32 scale, f32 bias, f32 sum) {
  return mf_fma(bias, sum, mf_fma(scale, product, total));
}
/// The product comes as that of the two halves of the activations.
MF_FN f32 add_unit_block(f32 total, f32 high, f32 low, f32 scale, f32 bias, f32 sum) {
  return add_unit_block(total, high + low, scale, bias, sum);
}

/// Eight activations as the bf16 they are rounded to and those that are left over, in the order in
/// which codes come out of a word.
struct UnitOctet {
  W4 high;
  W4 low;
  f32 sum;
};

MF_FN UnitOctet split_octet(MF_LOCAL(const f32) values) {
  UnitOctet octet;
  octet.sum = 0.0f;
  MF_UNROLL
  for (u32 i = 0u; i < 8u; ++i) octet.sum = octet.sum + values[i];
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) {
    const u32 pair = pack_bf16(values[i], values[i + 4u]);
    octet.high.v[i] = pair;
    octet.low.v[i] =
        pack_bf16(values[i] - as_float(pair << 16u), values[i + 4u] - as_float(pair & 0xffff0000u));
  }
  return octet;
}

MF_FN UnitOctet unit_octet(MF_GLOBAL(const f32) x, u32 at, u32 cols, u32 wide) {
  f32 values[8];
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
  return split_octet(values);
}

/// The sum over a block, of which 8 lanes hold an octet each.
MF_FN f32 unit_block_sum(MF_T t, f32 sum) {
  sum = sum + simd_shuffle_xor(t, sum, 1u);
  sum = sum + simd_shuffle_xor(t, sum, 2u);
  return sum + simd_shuffle_xor(t, sum, 4u);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
