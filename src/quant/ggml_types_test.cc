// GGML's types: the table, and what any bits of a block do.
#include "quant/ggml_types.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "quant/format_traits.h"
#include "quant/host_bytes_test_util.h"
#include "quant/weight.h"

namespace moeflux {
namespace {

constexpr size_t kMargin = 64;

std::vector<uint32_t> decode_bits(const GgmlType& type, const std::vector<uint8_t>& bytes,
                                  size_t begin, int64_t cols) {
  HostBytes buffer(bytes);
  Weight matrix = lay_out(*type.format, 1, cols);
  place_parts(matrix, 0, 1);
  std::vector<float> row(static_cast<size_t>(cols));
  decode_row(matrix.at(buffer, begin), 0, row);
  std::vector<uint32_t> bits;
  for (const float number : row) bits.push_back(std::bit_cast<uint32_t>(number));
  return bits;
}

TEST(GgmlTypes, NumbersAndNamesAreUniqueButForTheForksBlocks) {
  std::set<uint32_t> ids;
  std::set<std::string> names;
  for (const GgmlType& type : ggml_types()) {
    EXPECT_EQ(find_ggml_type(type.name), &type);
    EXPECT_TRUE(names.insert(std::string(type.name)).second) << type.name;
    if (type.name == "Q2_0_128") {
      EXPECT_EQ(find_ggml_type(type.id)->name, "Q2_0");
      continue;
    }
    EXPECT_TRUE(ids.insert(type.id).second) << type.name;
    EXPECT_EQ(find_ggml_type(type.id), &type);
  }
}

TEST(GgmlTypes, ThoseReadHaveTheBytesOfTheirFormat) {
  int readable = 0;
  for (const GgmlType& type : ggml_types()) {
    readable += type.is_readable();
    EXPECT_EQ(type.are_ids, type.name == "I32");
    if (!type.format) continue;
    EXPECT_EQ(weight_bytes(*type.format, 3, 2 * type.block_elements),
              static_cast<uint64_t>(3 * type.row_bytes(2 * type.block_elements)))
        << type.name;
    EXPECT_TRUE(is_valid(*type.format, type.block_elements)) << type.name;
    if (type.block_elements > 1) {
      EXPECT_FALSE(is_valid(*type.format, type.block_elements + 1)) << type.name;
    }
  }
  EXPECT_EQ(readable, 30);
}

TEST(GgmlTypes, ThoseNotReadAreKnownByName) {
  const std::pair<uint32_t, std::string_view> refused[] = {
      {4, "Q4_2"}, {31, "Q4_0_4_4"}, {137, "IQ2_K"}, {142, "IQ2_TN"}, {212, "Q4_K_R4"}};
  for (const auto& [id, name] : refused) {
    const GgmlType* type = find_ggml_type(id);
    ASSERT_NE(type, nullptr) << id;
    EXPECT_EQ(type->name, name);
    EXPECT_FALSE(type->is_readable());
  }
  EXPECT_EQ(find_ggml_type(43), nullptr);
  EXPECT_EQ(find_ggml_type(0xffffffffu), nullptr);
  EXPECT_EQ(find_ggml_type("q4_k"), find_ggml_type(12));
  EXPECT_EQ(find_ggml_type("Q4"), nullptr);
}

// The sanitizer sees a read outside a buffer of exactly a block. Without one, what lies around a
// block must not change its numbers.
TEST(GgmlTypes, AnyBitsAreABlockAndNothingAroundItIsRead) {
  std::mt19937 random(18);
  for (const GgmlType& type : ggml_types()) {
    if (!type.format) continue;
    SCOPED_TRACE(std::string(type.name));
    const auto block = static_cast<size_t>(type.block_bytes);
    for (int trial = 0; trial < 200; ++trial) {
      std::vector<uint8_t> bytes(block);
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
      if (trial < 2) bytes.assign(block, trial == 0 ? 0x00 : 0xff);
      const std::vector<uint32_t> alone = decode_bits(type, bytes, 0, type.block_elements);
      std::vector<uint8_t> among(block + 2 * kMargin);
      for (uint8_t& byte : among) byte = static_cast<uint8_t>(random());
      const size_t begin = kMargin - static_cast<size_t>(trial % 5);
      std::copy(bytes.begin(), bytes.end(), among.begin() + static_cast<ptrdiff_t>(begin));
      ASSERT_EQ(decode_bits(type, among, begin, type.block_elements), alone) << trial;
    }
  }
}

TEST(GgmlTypes, AnOuterScaleIsAFactorOfTheWholeMatrix) {
  for (const GgmlType& type : ggml_types()) {
    if (!type.is_readable() || type.block_elements == 1) continue;
    SCOPED_TRACE(std::string(type.name));
    const int64_t cols = 2 * type.block_elements;
    Weight plain = lay_out(*type.format, 2, cols);
    Weight scaled = lay_out(type.format->with_outer_scale(), 2, cols);
    EXPECT_FALSE(plain.has(PartRole::kOuterScale));
    ASSERT_TRUE(scaled.has(PartRole::kOuterScale));
    EXPECT_NE(plain.format, scaled.format);
    place_parts(plain, 0, 1);
    const uint64_t end = place_parts(scaled, 0, 1);
    std::mt19937 random(1);
    std::vector<uint8_t> bytes(end);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() & 0x3f);
    const float scale = -0.375f;
    std::memcpy(bytes.data() + scaled.parts.outer_scale.offset_bytes, &scale, sizeof(scale));
    HostBytes buffer(bytes);
    std::vector<float> without(static_cast<size_t>(cols));
    std::vector<float> with(static_cast<size_t>(cols));
    decode_row(plain.at(buffer, 0), 1, without);
    decode_row(scaled.at(buffer, 0), 1, with);
    for (size_t c = 0; c < with.size(); ++c) EXPECT_EQ(with[c], without[c] * scale) << c;
  }
}

}  // namespace
}  // namespace moeflux
