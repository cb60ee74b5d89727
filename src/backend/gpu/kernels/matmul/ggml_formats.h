// GGML's types, one number at a time: number `e` of a block, for any bits of the block.
// quant/formats/ggml_*_formats.cc are the definitions and say how blocks lie; products of an f16
// and the small integers of a block are exact, so that no order of factors matters.
#pragma once

#include "backend/gpu/kernels/matmul/ggml_grids.h"
#include "backend/gpu/kernels/params.h"
#include "quant/formats/iq_grid_data.h"

namespace moeflux {
namespace gpu {
namespace kernels {

MF_TABLE(f32, kIq4Numbers) = {-127.0f, -104.0f, -83.0f, -65.0f, -49.0f, -35.0f, -22.0f, -10.0f,
                              1.0f,    13.0f,   25.0f,  38.0f,  53.0f,  69.0f,  89.0f,  113.0f};

MF_FN u32 ggml_u16(MF_GLOBAL(const u8) block, u32 at) {
  return static_cast<u32>(block[at]) | static_cast<u32>(block[at + 1u]) << 8u;
}
MF_FN u32 ggml_u32(MF_GLOBAL(const u8) block, u32 at) {
  return ggml_u16(block, at) | ggml_u16(block, at + 2u) << 16u;
}
MF_FN f32 ggml_f16(MF_GLOBAL(const u8) block, u32 at) {
  return f16_to_float(static_cast<u16>(ggml_u16(block, at)));
}
MF_FN u32 ggml_bits(MF_GLOBAL(const u8) block, u32 at, u32 shift, u32 mask) {
  return (static_cast<u32>(block[at]) >> shift) & mask;
}
/// 32 codes of 4 bits in 16 bytes: the low halves first.
MF_FN u32 ggml_nibble(MF_GLOBAL(const u8) block, u32 at, u32 e) {
  return ggml_bits(block, at + e % 16u, e / 16u * 4u, 15u);
}
MF_FN f32 ggml_signed(u32 code, i32 zero) {
  return static_cast<f32>(static_cast<i32>(code) - zero);
}

MF_FN f32 q4_0_number(MF_GLOBAL(const u8) block, u32 e) {
  return ggml_f16(block, 0u) * ggml_signed(ggml_nibble(block, 2u, e), 8);
}
MF_FN f32 q4_1_number(MF_GLOBAL(const u8) block, u32 e) {
  return ggml_f16(block, 0u) * static_cast<f32>(ggml_nibble(block, 4u, e)) + ggml_f16(block, 2u);
}
MF_FN u32 ggml_five_bits(MF_GLOBAL(const u8) block, u32 at, u32 e) {
  return ggml_nibble(block, at + 4u, e) | ggml_bits(block, at + e / 8u, e % 8u, 1u) << 4u;
}
MF_FN f32 q5_0_number(MF_GLOBAL(const u8) block, u32 e) {
  return ggml_f16(block, 0u) * ggml_signed(ggml_five_bits(block, 2u, e), 16);
}
MF_FN f32 q5_1_number(MF_GLOBAL(const u8) block, u32 e) {
  return ggml_f16(block, 0u) * static_cast<f32>(ggml_five_bits(block, 4u, e)) + ggml_f16(block, 2u);
}
MF_FN f32 q8_0_number(MF_GLOBAL(const u8) block, u32 e) {
  return ggml_f16(block, 0u) * ggml_signed(block[2u + e] ^ 0x80u, 128);
}

MF_FN u32 ggml_two_bits(MF_GLOBAL(const u8) block, u32 at, u32 e) {
  return ggml_bits(block, at + e / 128u * 32u + e % 32u, e % 128u / 32u * 2u, 3u);
}
MF_FN f32 q2_k_number(MF_GLOBAL(const u8) block, u32 e) {
  const f32 low = ggml_f16(block, 82u) * static_cast<f32>(ggml_bits(block, e / 16u, 4u, 15u));
  const f32 scale = ggml_f16(block, 80u) * static_cast<f32>(ggml_bits(block, e / 16u, 0u, 15u));
  return scale * static_cast<f32>(ggml_two_bits(block, 16u, e)) - low;
}
MF_FN f32 q3_k_number(MF_GLOBAL(const u8) block, u32 e) {
  const u32 group = e / 16u;
  const u32 low = ggml_bits(block, 96u + group % 8u, group / 8u * 4u, 15u);
  const u32 scale = low | ggml_bits(block, 104u + group % 4u, group / 4u * 2u, 3u) << 4u;
  const u32 code = ggml_two_bits(block, 32u, e) | ggml_bits(block, e % 32u, e / 32u, 1u) << 2u;
  return ggml_f16(block, 108u) * ggml_signed(scale, 32) * ggml_signed(code, 4);
}
/// A number of Q4_K and Q5_K by its code: eight scales and eight minima of 6 bits in 12 bytes.
MF_FN f32 ggml_scaled(MF_GLOBAL(const u8) block, u32 group, u32 code) {
  u32 scale;
  u32 least;
  if (group < 4u) {
    scale = ggml_bits(block, 4u + group, 0u, 63u);
    least = ggml_bits(block, 8u + group, 0u, 63u);
  } else {
    scale = ggml_bits(block, 8u + group, 0u, 15u) | ggml_bits(block, group, 6u, 3u) << 4u;
    least = ggml_bits(block, 8u + group, 4u, 15u) | ggml_bits(block, 4u + group, 6u, 3u) << 4u;
  }
  const f32 low = ggml_f16(block, 2u) * static_cast<f32>(least);
  return ggml_f16(block, 0u) * static_cast<f32>(scale) * static_cast<f32>(code) - low;
}
MF_FN u32 ggml_four_bits(MF_GLOBAL(const u8) block, u32 at, u32 e) {
  return ggml_bits(block, at + e / 64u * 32u + e % 32u, e % 64u / 32u * 4u, 15u);
}
MF_FN f32 q4_k_number(MF_GLOBAL(const u8) block, u32 e) {
  return ggml_scaled(block, e / 32u, ggml_four_bits(block, 16u, e));
}
MF_FN f32 q5_k_number(MF_GLOBAL(const u8) block, u32 e) {
  const u32 high = ggml_bits(block, 16u + e % 32u, e / 32u, 1u);
  return ggml_scaled(block, e / 32u, ggml_four_bits(block, 48u, e) | high << 4u);
}
MF_FN f32 q6_k_number(MF_GLOBAL(const u8) block, u32 e) {
  const u32 group = e % 128u / 32u;
  const u32 low =
      ggml_bits(block, e / 128u * 64u + group % 2u * 32u + e % 32u, group / 2u * 4u, 15u);
  const u32 high = ggml_bits(block, 128u + e / 128u * 32u + e % 32u, group * 2u, 3u);
  const f32 scale = ggml_signed(block[192u + e / 16u] ^ 0x80u, 128);
  return ggml_f16(block, 208u) * scale * ggml_signed(low | high << 4u, 32);
}

/// Levels of a grid's entry: 2 bits of 8, 25, 43; 3 bits of 4, 12, ..., 52, 62, or of 1, 3,
/// ..., 15.
MF_FN f32 iq2_level(u32 entry, u32 i) {
  const u32 level = (entry >> (2u * i)) & 3u;
  return static_cast<f32>(level * 17u + 8u + level / 2u);
}
MF_FN f32 iq3_xxs_level(u32 entry, u32 i) {
  const u32 level = (entry >> (3u * i)) & 7u;
  return static_cast<f32>(level * 8u + 4u + level / 7u * 2u);
}
MF_FN f32 iq3_s_level(u32 entry, u32 i) {
  return static_cast<f32>(((entry >> (3u * i)) & 7u) * 2u + 1u);
}
/// Sign `i` of seven bits, which an eighth one makes an even number of minus signs.
MF_FN f32 iq_even_sign(u32 bits, u32 i) {
  const u32 folded = bits ^ bits >> 4u;
  const u32 negative = i < 7u ? bits >> i : 0x6996u >> (folded & 15u);
  return (negative & 1u) != 0u ? -1.0f : 1.0f;
}
MF_FN f32 iq_sign(MF_GLOBAL(const u8) block, u32 at, u32 i) {
  return ggml_bits(block, at, i, 1u) != 0u ? -1.0f : 1.0f;
}
MF_FN f32 iq_quarter(u32 code) { return (0.5f + static_cast<f32>(code)) * 0.25f; }

MF_FN f32 iq2_xxs_number(MF_GLOBAL(const u8) block, u32 e) {
  const u32 part = 2u + e / 32u * 8u;
  const u32 l = e % 32u / 8u;
  const u32 word = ggml_u32(block, part + 4u);
  return ggml_f16(block, 0u) * iq_quarter(word >> 28u) *
         iq2_level(kIq2XxsGrid[block[part + l]], e % 8u) *
         iq_even_sign((word >> (7u * l)) & 127u, e % 8u);
}
MF_FN f32 iq2_xs_number(MF_GLOBAL(const u8) block, u32 e) {
  const u32 code = ggml_u16(block, 2u + e / 8u * 2u);
  return ggml_f16(block, 0u) *
         iq_quarter(ggml_bits(block, 66u + e / 32u, e % 32u / 16u * 4u, 15u)) *
         iq2_level(kIq2XsGrid[code & 511u], e % 8u) * iq_even_sign(code >> 9u, e % 8u);
}
MF_FN f32 iq2_s_number(MF_GLOBAL(const u8) block, u32 e) {
  const u32 index = static_cast<u32>(block[2u + e / 8u]) |
                    ggml_bits(block, 66u + e / 32u, e % 32u / 8u * 2u, 3u) << 8u;
  return ggml_f16(block, 0u) *
         iq_quarter(ggml_bits(block, 74u + e / 32u, e % 32u / 16u * 4u, 15u)) *
         iq2_level(kIq2SGrid[index], e % 8u) * iq_sign(block, 34u + e / 8u, e % 8u);
}
MF_FN f32 iq3_xxs_number(MF_GLOBAL(const u8) block, u32 e) {
  const u32 word = ggml_u32(block, 66u + e / 32u * 4u);
  return ggml_f16(block, 0u) * iq_quarter(word >> 28u) * 2.0f *
         iq3_xxs_level(kIq3XxsGrid[block[2u + e / 4u]], e % 4u) *
         iq_even_sign((word >> (e % 32u / 8u * 7u)) & 127u, e % 8u);
}
MF_FN f32 iq3_s_number(MF_GLOBAL(const u8) block, u32 e) {
  const u32 index = static_cast<u32>(block[2u + e / 4u]) |
                    ggml_bits(block, 66u + e / 32u, e % 32u / 4u, 1u) << 8u;
  const u32 scale = 2u * ggml_bits(block, 106u + e / 64u, e % 64u / 32u * 4u, 15u) + 1u;
  return ggml_f16(block, 0u) * static_cast<f32>(scale) * iq3_s_level(kIq3SGrid[index], e % 4u) *
         iq_sign(block, 74u + e / 8u, e % 8u);
}
MF_FN f32 iq1_level(u32 index, u32 i, bool down) {
  const u32 level = (static_cast<u32>(kIq1Grid[index]) >> (2u * i)) & 3u;
  return static_cast<f32>(level) + (down ? -1.125f : -0.875f);
}
MF_FN f32 iq1_s_number(MF_GLOBAL(const u8) block, u32 e) {
  const u32 high = ggml_u16(block, 34u + e / 32u * 2u);
  const u32 index = static_cast<u32>(block[2u + e / 8u]) | ((high >> (e % 32u / 8u * 3u)) & 7u)
                                                               << 8u;
  return ggml_f16(block, 0u) * static_cast<f32>(2u * ((high >> 12u) & 7u) + 1u) *
         iq1_level(index, e % 8u, (high & 0x8000u) != 0u);
}
MF_FN f32 iq1_m_number(MF_GLOBAL(const u8) block, u32 e) {
  const u32 d = ggml_bits(block, 49u, 4u, 15u) | ggml_bits(block, 51u, 4u, 15u) << 4u |
                ggml_bits(block, 53u, 4u, 15u) << 8u | ggml_bits(block, 55u, 4u, 15u) << 12u;
  const u32 group = e / 16u;
  const u32 scale = (ggml_u16(block, 48u + group / 4u * 2u) >> (3u * (group % 4u))) & 7u;
  const u32 high = ggml_bits(block, 32u + group, e % 16u / 8u * 4u, 15u);
  return f16_to_float(static_cast<u16>(d)) * static_cast<f32>(2u * scale + 1u) *
         iq1_level(static_cast<u32>(block[e / 8u]) | (high & 7u) << 8u, e % 8u, (high & 8u) != 0u);
}
MF_FN f32 iq4_nl_number(MF_GLOBAL(const u8) block, u32 e) {
  return ggml_f16(block, 0u) * kIq4Numbers[ggml_nibble(block, 2u, e)];
}
MF_FN f32 iq4_xs_number(MF_GLOBAL(const u8) block, u32 e) {
  const u32 group = e / 32u;
  const u32 scale = ggml_bits(block, 4u + group / 2u, group % 2u * 4u, 15u) |
                    ((ggml_u16(block, 2u) >> (2u * group)) & 3u) << 4u;
  return ggml_f16(block, 0u) * ggml_signed(scale, 32) *
         kIq4Numbers[ggml_nibble(block, 8u + 16u * group, e % 32u)];
}

/// Twice the number of a code of e2m1.
MF_FN f32 ggml_e2m1(u32 code) {
  const u32 low = code & 1u;
  const u32 exponent = (code >> 1u) & 3u;
  const u32 doubled = exponent == 0u ? low : (2u + low) << (exponent - 1u);
  const f32 magnitude = static_cast<f32>(doubled);
  return (code & 8u) != 0u && doubled != 0u ? -magnitude : magnitude;
}
/// Scales are halves of powers of two, of which the two smallest are below the normal numbers.
MF_FN f32 mxfp4_gguf_number(MF_GLOBAL(const u8) block, u32 e) {
  const u32 scale = block[0u];
  return as_float(scale < 2u ? 0x00200000u << scale : (scale - 1u) << 23u) *
         ggml_e2m1(ggml_nibble(block, 1u, e));
}
/// Scales are halves that are 256 times too small, and 128 times gives half of one.
MF_FN f32 nvfp4_gguf_number(MF_GLOBAL(const u8) block, u32 e) {
  const u32 scale = block[e / 16u];
  const u32 code = ggml_bits(block, 4u + e / 16u * 8u + e % 8u, e % 16u / 8u * 4u, 15u);
  const f32 factor =
      scale == 0x7fu ? 0.0f : f16_to_float(static_cast<u16>((scale & 0x7fu) << 7u)) * 128.0f;
  return factor * ggml_e2m1(code);
}

MF_FN f32 q1_0_number(MF_GLOBAL(const u8) block, u32 e) {
  const u32 positive = ggml_bits(block, 2u + e / 8u, e % 8u, 1u);
  return ggml_f16(block, 0u) * (positive != 0u ? 1.0f : -1.0f);
}
MF_FN f32 q2_0_number(MF_GLOBAL(const u8) block, u32 e) {
  return ggml_f16(block, 0u) * ggml_signed(ggml_bits(block, 2u + e / 4u, e % 4u * 2u, 3u), 1);
}
MF_FN f32 q2_0_128_number(MF_GLOBAL(const u8) block, u32 e) { return q2_0_number(block, e); }
/// Digit `n` to the base of 3 of a byte, which is a fraction of 256.
MF_FN u32 ggml_digit(u32 byte, u32 n) {
  const u32 squared = n / 2u == 2u ? 81u : n / 2u == 1u ? 9u : 1u;
  const u32 rest = (byte * squared * (n % 2u == 1u ? 3u : 1u)) & 255u;
  return rest * 3u >> 8u;
}
MF_FN f32 tq1_0_number(MF_GLOBAL(const u8) block, u32 e) {
  const u32 begin = e < 160u ? 0u : e < 240u ? 160u : 240u;
  const u32 width = e < 160u ? 32u : e < 240u ? 16u : 4u;
  const u32 at = e < 160u ? 0u : e < 240u ? 32u : 48u;
  const u32 digit = ggml_digit(block[at + (e - begin) % width], (e - begin) / width);
  return ggml_f16(block, 52u) * ggml_signed(digit, 1);
}
MF_FN f32 tq2_0_number(MF_GLOBAL(const u8) block, u32 e) {
  return ggml_f16(block, 64u) * ggml_signed(ggml_two_bits(block, 0u, e), 1);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
