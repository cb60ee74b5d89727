// GGML's types of one and two bits and its ternary ones: a code, less the code of zero, times the
// f16 of its block. Codes of Q1_0 and Q2_0 lie in order, lowest bits first.
//   Q1_0     18 bytes, 128 numbers: f16 d; u8 qs[16]; a bit says d, its absence -d
//   Q2_0     18 bytes, 64 numbers: f16 d; u8 qs[16]; codes 0 to 3 are -d, 0, d, 2 d
//   Q2_0 of blocks of 128, 34 bytes: the same with qs[32], under the same number in files of a fork
//   TQ1_0    54 bytes, 256 numbers: u8 qs[48]; u8 qh[4]; f16 d; five digits to the base of 3 a
//            byte, in qh four: 32 bytes hold five times 32 numbers, 16 five times 16, 4 four times
//            4
//   TQ2_0    66 bytes, 256 numbers: u8 qs[64]; f16 d; codes as those of Q2_0, laid as in Q2_K
// Source: the format as GGUF files have it (ggml-quants of llama.cpp).
#include "quant/formats/blocks.h"

namespace moeflux {
namespace {

using blocks::f16_at;

float q1_0(const uint8_t* block, int e) {
  const bool positive = (block[2 + e / 8] >> (e % 8) & 1) != 0;
  return f16_at(block) * (positive ? 1.0f : -1.0f);
}

float q2_0(const uint8_t* block, int e) {
  const int code = block[2 + e / 4] >> (e % 4 * 2) & 3;
  return f16_at(block) * static_cast<float>(code - 1);
}

/// Digit `n` of a byte, which is a fraction of 256: the first digit is the highest.
int digit_of(uint8_t byte, int n) {
  constexpr uint8_t kPowers[] = {1, 3, 9, 27, 81};
  const auto rest = static_cast<uint8_t>(byte * kPowers[n]);
  return rest * 3 >> 8;
}

int ternary_code(const uint8_t* block, int e) {
  if (e < 160) return digit_of(block[e % 32], e / 32);
  if (e < 240) return digit_of(block[32 + (e - 160) % 16], (e - 160) / 16);
  return digit_of(block[48 + (e - 240) % 4], (e - 240) / 4);
}

float tq1_0(const uint8_t* block, int e) {
  return f16_at(block + 52) * static_cast<float>(ternary_code(block, e) - 1);
}

float tq2_0(const uint8_t* block, int e) {
  const int code = block[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
  return f16_at(block + 64) * static_cast<float>(code - 1);
}

}  // namespace

std::span<const FormatTraits> ggml_low_formats() {
  static const FormatTraits kFormats[] = {
      make_block_format("q1_0", {128, 18, q1_0}),     make_block_format("q2_0", {64, 18, q2_0}),
      make_block_format("q2_0_128", {128, 34, q2_0}), make_block_format("tq1_0", {256, 54, tq1_0}),
      make_block_format("tq2_0", {256, 66, tq2_0}),
  };
  return kFormats;
}

}  // namespace moeflux
