// GGML's IQ types: blocks of 256 numbers (IQ4_NL: 32) whose codes choose from a table of numbers or
// of rows of a grid (iq_grids.h), with signs beside them. Below, ib is the 32 numbers that number e
// is of, l the eight of those, j its place there.
//   IQ2_XXS  66 bytes: f16 d; 8 times {u8 index[4]; u32 signs and scale}
//   IQ2_XS   74 bytes: f16 d; u16 qs[32]; u8 scales[8]
//   IQ2_S    82 bytes: f16 d; u8 qs[32]; u8 signs[32]; u8 qh[8]; u8 scales[8]
//   IQ3_XXS  98 bytes: f16 d; u8 qs[64]; u32 signs and scale[8]
//   IQ3_S   110 bytes: f16 d; u8 qs[64]; u8 qh[8]; u8 signs[32]; u8 scales[4]
//   IQ1_S    50 bytes: f16 d; u8 qs[32]; u16 qh[8]
//   IQ1_M    56 bytes: u8 qs[32]; u8 qh[16]; u16 scales[4], whose high nibbles are an f16 d
//   IQ4_NL   18 bytes: f16 d; u8 qs[16]
//   IQ4_XS  136 bytes: f16 d; u16 scales_h; u8 scales_l[4]; u8 qs[128]
// Every index has as many bits as its grid needs, so that no bits lead outside it.
// Source: the format as GGUF files have it (ggml-quants of llama.cpp).
#include "quant/formats/blocks.h"
#include "quant/formats/iq_grids.h"

namespace moeflux {
namespace {

using blocks::f16_at;
using blocks::nibble_of_32;
using blocks::u16_at;
using blocks::u32_at;

/// The place of number e in a block: its 32, their eight, its place among those.
struct Place {
  explicit Place(int e) : ib(e / 32), l(e % 32 / 8), j(e % 8) {}
  int ib;
  int l;
  int j;
};

float with_sign(float number, bool negative) { return number * (negative ? -1.0f : 1.0f); }

float iq2_xxs(const uint8_t* block, int e) {
  const Place at(e);
  const uint8_t* part = block + 2 + 8 * at.ib;
  const uint32_t word = u32_at(part + 4);
  const float scale = f16_at(block) * (0.5f + static_cast<float>(word >> 28)) * 0.25f;
  const int number = iq::iq2_number(iq::kIq2XxsGrid[part[at.l]], at.j);
  return with_sign(scale * static_cast<float>(number),
                   iq::even_sign(word >> (7 * at.l) & 127, at.j));
}

float iq2_xs(const uint8_t* block, int e) {
  const Place at(e);
  const uint32_t code = u16_at(block + 2 + 2 * (4 * at.ib + at.l));
  const int nibble = block[66 + at.ib] >> (at.l / 2 * 4) & 15;
  const float scale = f16_at(block) * (0.5f + static_cast<float>(nibble)) * 0.25f;
  const int number = iq::iq2_number(iq::kIq2XsGrid[code & 511], at.j);
  return with_sign(scale * static_cast<float>(number), iq::even_sign(code >> 9, at.j));
}

float iq2_s(const uint8_t* block, int e) {
  const Place at(e);
  const int index = block[2 + 4 * at.ib + at.l] | (block[66 + at.ib] >> (2 * at.l) & 3) << 8;
  const int nibble = block[74 + at.ib] >> (at.l / 2 * 4) & 15;
  const float scale = f16_at(block) * (0.5f + static_cast<float>(nibble)) * 0.25f;
  const int number = iq::iq2_number(iq::kIq2SGrid[index], at.j);
  return with_sign(scale * static_cast<float>(number),
                   (block[34 + 4 * at.ib + at.l] >> at.j & 1) != 0);
}

float iq3_xxs(const uint8_t* block, int e) {
  const Place at(e);
  const uint32_t word = u32_at(block + 66 + 4 * at.ib);
  const float scale = f16_at(block) * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
  const int index = block[2 + 8 * at.ib + 2 * at.l + at.j / 4];
  const int number = iq::iq3_xxs_number(iq::kIq3XxsGrid[index], at.j % 4);
  return with_sign(scale * static_cast<float>(number),
                   iq::even_sign(word >> (7 * at.l) & 127, at.j));
}

float iq3_s(const uint8_t* block, int e) {
  const Place at(e);
  const int k = 2 * at.l + at.j / 4;
  const int index = block[2 + 8 * at.ib + k] | (block[66 + at.ib] >> k & 1) << 8;
  const int nibble = block[106 + at.ib / 2] >> (at.ib % 2 * 4) & 15;
  const float scale = f16_at(block) * static_cast<float>(1 + 2 * nibble);
  const int number = iq::iq3_s_number(iq::kIq3SGrid[index], at.j % 4);
  return with_sign(scale * static_cast<float>(number),
                   (block[74 + 4 * at.ib + at.l] >> at.j & 1) != 0);
}

/// A number of IQ1's grid, moved by an eighth.
float iq1(float scale, int index, bool down, int j) {
  const auto number = static_cast<float>(iq::iq1_number(iq::kIq1Grid[index], j));
  return scale * (number + (down ? -0.125f : 0.125f));
}

float iq1_s(const uint8_t* block, int e) {
  const Place at(e);
  const uint32_t high = u16_at(block + 34 + 2 * at.ib);
  const auto index = static_cast<int>(block[2 + 4 * at.ib + at.l] | (high >> (3 * at.l) & 7) << 8);
  const float scale = f16_at(block) * static_cast<float>(2 * (high >> 12 & 7) + 1);
  return iq1(scale, index, (high & 0x8000) != 0, at.j);
}

float iq1_m(const uint8_t* block, int e) {
  const Place at(e);
  uint32_t d = 0;
  for (int i = 0; i < 4; ++i) d |= u16_at(block + 48 + 2 * i) >> 12 << (4 * i);
  const uint32_t scales = u16_at(block + 48 + at.ib / 2 * 2);
  const uint32_t code = scales >> (at.ib % 2 * 6 + at.l / 2 * 3) & 7;
  const int high = block[32 + 2 * at.ib + at.l / 2] >> (at.l % 2 * 4) & 15;
  const float scale = to_float(F16{static_cast<uint16_t>(d)}) * static_cast<float>(2 * code + 1);
  return iq1(scale, block[4 * at.ib + at.l] | (high & 7) << 8, (high & 8) != 0, at.j);
}

float iq4_nl(const uint8_t* block, int e) {
  return f16_at(block) * static_cast<float>(iq::kIq4Levels[nibble_of_32(block + 2, e)]);
}

float iq4_xs(const uint8_t* block, int e) {
  const int ib = e / 32;
  const int low = block[4 + ib / 2] >> (ib % 2 * 4) & 15;
  const auto high = static_cast<int>(u16_at(block + 2) >> (2 * ib) & 3);
  const int number = iq::kIq4Levels[nibble_of_32(block + 8 + 16 * ib, e % 32)];
  return f16_at(block) * static_cast<float>((low | high << 4) - 32) * static_cast<float>(number);
}

}  // namespace

std::span<const FormatTraits> ggml_iq_formats() {
  static const FormatTraits kFormats[] = {
      make_block_format("iq2_xxs", {256, 66, iq2_xxs}),
      make_block_format("iq2_xs", {256, 74, iq2_xs}),
      make_block_format("iq2_s", {256, 82, iq2_s}),
      make_block_format("iq3_xxs", {256, 98, iq3_xxs}),
      make_block_format("iq3_s", {256, 110, iq3_s}),
      make_block_format("iq1_s", {256, 50, iq1_s}),
      make_block_format("iq1_m", {256, 56, iq1_m}),
      make_block_format("iq4_nl", {32, 18, iq4_nl}),
      make_block_format("iq4_xs", {256, 136, iq4_xs}),
  };
  return kFormats;
}

}  // namespace moeflux
