// GGML's K types: blocks of 256 numbers in groups of 16 or 32, whose scales are small integers
// times an f16 of the block.
//   Q2_K   84 bytes: u8 scales[16]; u8 qs[64]; f16 d; f16 dmin
//   Q3_K  110 bytes: u8 hmask[32]; u8 qs[64]; u8 scales[12]; f16 d
//   Q4_K  144 bytes: f16 d; f16 dmin; u8 scales[12]; u8 qs[128]
//   Q5_K  176 bytes: f16 d; f16 dmin; u8 scales[12]; u8 qh[32]; u8 qs[128]
//   Q6_K  210 bytes: u8 ql[128]; u8 qh[64]; i8 scales[16]; f16 d
// Source: the format as GGUF files have it (ggml-quants of llama.cpp).
#include "quant/formats/blocks.h"

namespace moeflux {
namespace {

using blocks::f16_at;

/// Codes of 2 bits: 32 bytes hold four times 32 numbers.
int code_of_2_bits(const uint8_t* codes, int e) {
  return codes[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
}

float q2_k(const uint8_t* block, int e) {
  const int code = code_of_2_bits(block + 16, e);
  const int scale = block[e / 16];
  const float low = f16_at(block + 82) * static_cast<float>(scale >> 4);
  return f16_at(block + 80) * static_cast<float>(scale & 15) * static_cast<float>(code) - low;
}

float q3_k(const uint8_t* block, int e) {
  const uint8_t* scales = block + 96;
  const int group = e / 16;
  const int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
  const int high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
  const int scale = (low | high << 4) - 32;
  const int less = (block[e % 32] >> (e / 32) & 1) != 0 ? 0 : 4;
  const int code = code_of_2_bits(block + 32, e) - less;
  return f16_at(block + 108) * static_cast<float>(scale) * static_cast<float>(code);
}

struct ScaleAndMin {
  int scale;
  int min;
};
/// Eight scales and eight minima of 6 bits in 12 bytes.
ScaleAndMin six_bits_of(const uint8_t* s, int group) {
  if (group < 4) return {s[group] & 63, s[group + 4] & 63};
  return {(s[group + 4] & 15) | s[group - 4] >> 6 << 4, s[group + 4] >> 4 | s[group] >> 6 << 4};
}

/// Codes of 4 bits: 32 bytes hold two times 32 numbers.
int code_of_4_bits(const uint8_t* codes, int e) {
  return codes[e / 64 * 32 + e % 32] >> (e % 64 / 32 * 4) & 15;
}

float scaled(const uint8_t* block, int group, int code) {
  const auto [scale, min] = six_bits_of(block + 4, group);
  const float low = f16_at(block + 2) * static_cast<float>(min);
  return f16_at(block) * static_cast<float>(scale) * static_cast<float>(code) - low;
}

float q4_k(const uint8_t* block, int e) {
  return scaled(block, e / 32, code_of_4_bits(block + 16, e));
}

float q5_k(const uint8_t* block, int e) {
  const int high = block[16 + e % 32] >> (e / 32) & 1;
  return scaled(block, e / 32, code_of_4_bits(block + 48, e) | high << 4);
}

float q6_k(const uint8_t* block, int e) {
  const int half = e / 128;
  const int group = e % 128 / 32;
  const int i = e % 32;
  const int low = block[half * 64 + group % 2 * 32 + i] >> (group / 2 * 4) & 15;
  const int high = block[128 + half * 32 + i] >> (group * 2) & 3;
  const int scale = static_cast<int8_t>(block[192 + e / 16]);
  return f16_at(block + 208) * static_cast<float>(scale) *
         static_cast<float>((low | high << 4) - 32);
}

}  // namespace

std::span<const FormatTraits> ggml_k_formats() {
  static const FormatTraits kFormats[] = {
      make_block_format("q2_k", {256, 84, q2_k}),  make_block_format("q3_k", {256, 110, q3_k}),
      make_block_format("q4_k", {256, 144, q4_k}), make_block_format("q5_k", {256, 176, q5_k}),
      make_block_format("q6_k", {256, 210, q6_k}),
  };
  return kFormats;
}

}  // namespace moeflux
