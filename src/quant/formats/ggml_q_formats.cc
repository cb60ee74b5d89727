// GGML's blocks of 32 numbers: w = d * code, or d * code + m, with codes of 4, 5 or 8 bits.
//   Q4_0  18 bytes: f16 d; 16 bytes of codes, w = d * (code - 8)
//   Q4_1  20 bytes: f16 d; f16 m; 16 bytes of codes
//   Q5_0  22 bytes: f16 d; u32 of the codes' bits 4; 16 bytes of their others, w = d * (code - 16)
//   Q5_1  24 bytes: f16 d; f16 m; u32; 16 bytes
//   Q8_0  34 bytes: f16 d; 32 signed bytes
// Byte i of sixteen holds code i in its low half and code i + 16 in its high one.
// Source: the format as GGUF files have it (ggml-quants of llama.cpp).
#include "quant/formats/blocks.h"

namespace moeflux {
namespace {

using blocks::f16_at;
using blocks::nibble_of_32;
using blocks::u32_at;

float q4_0(const uint8_t* block, int e) {
  return f16_at(block) * static_cast<float>(nibble_of_32(block + 2, e) - 8);
}

float q4_1(const uint8_t* block, int e) {
  return f16_at(block) * static_cast<float>(nibble_of_32(block + 4, e)) + f16_at(block + 2);
}

/// A code of 5 bits, of which the fifth ones come first.
int code_of_5_bits(const uint8_t* codes, int e) {
  return nibble_of_32(codes + 4, e) | static_cast<int>(u32_at(codes) >> e & 1) << 4;
}

float q5_0(const uint8_t* block, int e) {
  return f16_at(block) * static_cast<float>(code_of_5_bits(block + 2, e) - 16);
}

float q5_1(const uint8_t* block, int e) {
  return f16_at(block) * static_cast<float>(code_of_5_bits(block + 4, e)) + f16_at(block + 2);
}

float q8_0(const uint8_t* block, int e) {
  return f16_at(block) * static_cast<float>(static_cast<int8_t>(block[2 + e]));
}

}  // namespace

std::span<const FormatTraits> ggml_q_formats() {
  static const FormatTraits kFormats[] = {
      make_block_format("q4_0", {32, 18, q4_0}), make_block_format("q4_1", {32, 20, q4_1}),
      make_block_format("q5_0", {32, 22, q5_0}), make_block_format("q5_1", {32, 24, q5_1}),
      make_block_format("q8_0", {32, 34, q8_0}),
  };
  return kFormats;
}

}  // namespace moeflux
