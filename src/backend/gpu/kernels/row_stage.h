// Rows of numbers on their way to matrix units: scaled by a power of two, in halves of f16, in
// shared memory in the order in which lanes read them.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

enum : u32 {
  kExponentMin = 67u,  // 2^-60; what is smaller counts as that
  kNotFinite = 255u,
};

/// The exponent of the largest of a SIMD group's rows, from the maxima of the bits of its lanes.
MF_FN u32 row_exponent(MF_T t, u32 bits) {
  MF_UNROLL
  for (u32 mask = 16u; mask > 0u; mask /= 2u) {
    const u32 other = simd_shuffle_xor(t, bits, mask);
    bits = other > bits ? other : bits;
  }
  const u32 exponent = bits >> 23u;
  return exponent < kExponentMin ? static_cast<u32>(kExponentMin) : exponent;
}
/// 2^14 over the power of two; 0 for a row that is not finite, whose factor says so instead.
MF_FN f32 into_halves(u32 exponent) {
  return exponent == kNotFinite ? 0.0f : as_float((268u - exponent) << 23u);
}
MF_FN f32 out_of_halves(u32 exponent) {
  return as_float(exponent == kNotFinite ? 0x7fc00000u : (exponent - 14u) << 23u);
}

MF_FN f32 f16_half(u32 pair, u32 half) {
  return f16_to_float(static_cast<u16>(half == 0u ? pair & 0xffffu : pair >> 16u));
}
/// Four numbers: the pairs of their larger halves, then of what is left.
MF_FN W4 split_four(F4 x) {
  W4 unit;
  MF_UNROLL
  for (u32 i = 0u; i < 2u; ++i) {
    unit.v[i] = pack_f16(x.v[2u * i], x.v[2u * i + 1u]);
    unit.v[i + 2u] =
        pack_f16(x.v[2u * i] - f16_half(unit.v[i], 0u), x.v[2u * i + 1u] - f16_half(unit.v[i], 1u));
  }
  return unit;
}

/// COUNT rows of up to UNITS * 128 columns that a SIMD group brings to shared memory; a lane has
/// every 32nd unit of 4 columns.
template <u32 COUNT, u32 UNITS>
struct RowStage {
  enum : u32 { kCount = COUNT };
  F4 held[COUNT * UNITS];

  MF_FN_MEMBER void load_row(MF_T t, u32 i, MF_GLOBAL(const f32) from, u32 cols, u32 wide) {
    MF_UNROLL
    for (u32 u = 0u; u < UNITS; ++u) {
      const u32 at = (t.lane + 32u * u) * 4u;
      F4 four = {{0.0f, 0.0f, 0.0f, 0.0f}};
      if (wide != 0u) {
        if (at < cols) four = load4(from + at);
      } else {
        MF_UNROLL
        for (u32 e = 0u; e < 4u; ++e) {
          if (at + e < cols) four.v[e] = from[at + e];
        }
      }
      held[i * UNITS + u] = four;
    }
  }
  MF_FN_MEMBER void clear_row(u32 i) {
    const F4 nothing = {{0.0f, 0.0f, 0.0f, 0.0f}};
    MF_UNROLL
    for (u32 u = 0u; u < UNITS; ++u) held[i * UNITS + u] = nothing;
  }
  MF_FN_MEMBER u32 exponent(MF_T t, u32 i) const {
    u32 bits = 0u;
    MF_UNROLL
    for (u32 u = 0u; u < UNITS; ++u) {
      MF_UNROLL
      for (u32 e = 0u; e < 4u; ++e) {
        const u32 own = as_bits(held[i * UNITS + u].v[e]) & 0x7fffffffu;
        bits = own > bits ? own : bits;
      }
    }
    return row_exponent(t, bits);
  }
  /// Row i in halves. Of keys and queries a unit has pairs of columns; of values a word has both
  /// halves of one, as pairs are of keys there.
  template <bool PAIRS>
  MF_FN_MEMBER void store_row(MF_T t, u32 i, MF_SHARED(u32) to, u32 cols, u32 exponent) const {
    const f32 factor = into_halves(exponent);
    MF_UNROLL
    for (u32 u = 0u; u < UNITS; ++u) {
      const u32 at = (t.lane + 32u * u) * 4u;
      if (at >= cols) continue;
      F4 scaled;
      MF_UNROLL
      for (u32 e = 0u; e < 4u; ++e) {
        // What is not finite would stay so, and zero weights make no zero of it.
        scaled.v[e] = factor == 0.0f ? 0.0f : held[i * UNITS + u].v[e] * factor;
      }
      const W4 unit = split_four(scaled);
      if (PAIRS) {
        store4(to + at, unit);
      } else {
        const W4 words = {{(unit.v[0] & 0xffffu) | unit.v[2] << 16u,
                           unit.v[0] >> 16u | (unit.v[2] & 0xffff0000u),
                           (unit.v[1] & 0xffffu) | unit.v[3] << 16u,
                           unit.v[1] >> 16u | (unit.v[3] & 0xffff0000u)}};
        store4(to + at, words);
      }
    }
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
