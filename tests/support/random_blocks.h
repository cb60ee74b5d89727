// Random matrices of GGML's types, with scales that give numbers of about 0.1 to 10.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "quant/format_traits.h"
#include "quant/ggml_types.h"
#include "quant/weight.h"
#include "tensor/dtype.h"

namespace moeflux::testing {

/// Where a block of a type has its halves: scales, and offsets after them.
inline std::vector<size_t> half_places(std::string_view name) {
  if (name == "Q4_1" || name == "Q5_1" || name == "Q4_K" || name == "Q5_K") return {0, 2};
  if (name == "Q2_K") return {80, 82};
  if (name == "Q3_K") return {108};
  if (name == "Q6_K") return {208};
  if (name == "TQ1_0") return {52};
  if (name == "TQ2_0") return {64};
  if (name == "IQ1_M" || name == "MXFP4" || name == "NVFP4") return {};
  return {0};
}

/// One block of any bits but for its scales.
inline void fill_block(const GgmlType& type, std::mt19937& random, uint8_t* block) {
  for (int64_t i = 0; i < type.block_bytes; ++i) block[i] = static_cast<uint8_t>(random());
  const bool small = type.name == "Q8_0" || type.name.starts_with("IQ4_NL");
  const bool integers = type.block_elements == 256 && !type.name.starts_with("TQ");
  const float size = integers ? 0.0005f : small ? 0.01f : 0.1f;
  for (const size_t at : half_places(type.name)) {
    const float scale = size * (1.0f + static_cast<float>(random() % 64) / 64.0f);
    const F16 half = to_f16(random() % 4 == 0 ? -scale : scale);
    std::memcpy(block + at, &half.bits, 2);
  }
  if (type.name == "IQ1_M") {  // the four high nibbles are 0x2c00 and a bit
    const uint8_t nibbles[4] = {static_cast<uint8_t>(random() & 15), 0, 0xc, 2};
    for (size_t i = 0; i < 4; ++i) {
      uint8_t& byte = block[49 + 2 * i];
      byte = static_cast<uint8_t>((byte & 15) | nibbles[i] << 4);
    }
  }
  if (type.name == "MXFP4") block[0] = static_cast<uint8_t>(122 + random() % 6);
  if (type.name == "NVFP4") {
    for (int i = 0; i < 4; ++i) block[i] = static_cast<uint8_t>(0x28 + random() % 16);
  }
}

/// A matrix and its bytes, the parts `begin` and more behind their start.
struct BlockMatrix {
  BlockMatrix(const GgmlType& type, int64_t rows, int64_t cols, uint32_t seed, bool outer = false,
              uint64_t begin = 0)
      : layout(lay_out(outer ? type.format->with_outer_scale() : *type.format, rows, cols)) {
    bytes.resize(place_parts(layout, begin, 4));
    std::mt19937 random(seed);
    const std::span<std::byte> codes = layout.bytes_in(bytes.data()).codes;
    for (size_t at = 0; at < codes.size(); at += static_cast<size_t>(type.block_bytes)) {
      fill_block(type, random, reinterpret_cast<uint8_t*>(codes.data()) + at);
    }
    if (!outer) return;
    const float scale = 0.75f;
    std::memcpy(layout.bytes_in(bytes.data()).outer_scale.data(), &scale, sizeof(scale));
  }

  Weight layout;
  std::vector<std::byte> bytes;
};

/// Every type whose rows are blocks.
inline std::vector<GgmlType> block_types() {
  std::vector<GgmlType> types;
  for (const GgmlType& type : ggml_types()) {
    if (type.is_readable() && type.block_elements > 1) types.push_back(type);
  }
  return types;
}

}  // namespace moeflux::testing
