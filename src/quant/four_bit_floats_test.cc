// 4-bit floats in files: the blocks that are made of them in memory.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "quant/format_traits.h"
#include "quant/formats/tensor_formats.h"
#include "quant/host_bytes_test_util.h"
#include "quant/weight.h"

namespace moeflux {
namespace {

constexpr int64_t kRows = 5;

std::vector<float> numbers_of(const Weight& layout, const std::vector<std::byte>& bytes) {
  const auto* begin = reinterpret_cast<const uint8_t*>(bytes.data());
  HostBytes memory(std::vector<uint8_t>(begin, begin + bytes.size()));
  const Weight weight = layout.at(memory, 0);
  std::vector<float> values(static_cast<size_t>(weight.rows * weight.cols));
  for (int64_t row = 0; row < weight.rows; ++row) {
    decode_row(weight, row,
               std::span(values).subspan(static_cast<size_t>(row * weight.cols),
                                         static_cast<size_t>(weight.cols)));
  }
  return values;
}

/// Any codes and scales but NaN, which blocks do not have.
void expect_the_same_in_blocks(const QuantFormat& format, int64_t cols, const QuantFormat& blocks) {
  SCOPED_TRACE(format.to_string());
  std::mt19937 random(static_cast<uint32_t>(cols) + format.variant);
  Weight stored = lay_out(format, kRows, cols);
  std::vector<std::byte> bytes(place_parts(stored, 0, 64));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 255u);
  const Parts<std::span<std::byte>> parts = stored.bytes_in(bytes.data());
  for (std::byte& scale : parts.scales) {
    if ((scale | std::byte{0x80}) == std::byte{0xff}) scale = std::byte{0x33};
  }
  if (stored.has(PartRole::kOuterScale)) {
    const float outer = 0.37f;
    std::memcpy(parts.outer_scale.data(), &outer, sizeof(outer));
  }
  EXPECT_EQ(format_in_memory(format, kRows, cols), blocks);
  Weight made = lay_out(blocks, kRows, cols);
  std::vector<std::byte> memory(place_parts(made, 0, 64));
  arrange_matrix(made, made.bytes_in(memory.data()), stored, parts);
  EXPECT_EQ(numbers_of(made, memory), numbers_of(stored, bytes));
}

TEST(FourBitFloats, AreTheSameNumbersInBlocks) {
  const QuantFormat nvfp4 = QuantFormat::of(*find_format("nvfp4_gguf"));
  for (const int64_t cols : {64, 128, 320}) {
    expect_the_same_in_blocks(QuantFormat::of(mxfp4_format), cols + 32,
                              QuantFormat::of(*find_format("mxfp4_gguf")));
    expect_the_same_in_blocks(nvfp4_of(OuterScale::kNone), cols, nvfp4);
    for (const OuterScale outer : {OuterScale::kFactor, OuterScale::kDivisor}) {
      expect_the_same_in_blocks(nvfp4_of(outer), cols, nvfp4.with_outer_scale());
    }
  }
}

TEST(FourBitFloats, RowsOfHalfABlockStayWhatTheyAre) {
  const QuantFormat format = nvfp4_of(OuterScale::kFactor);
  EXPECT_EQ(format_in_memory(format, kRows, 96), format);
}

}  // namespace
}  // namespace moeflux
