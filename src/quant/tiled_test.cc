// Tiles hold the numbers of the row-major matrix they were made of, and give its bytes back.
#include "quant/formats/tiled.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "quant/format_traits.h"
#include "quant/host_bytes_test_util.h"
#include "quant/weight.h"

namespace moeflux {
namespace {

struct Case {
  int bits;
  int group_size;
  DType dtype;
  int64_t rows;
  int64_t cols;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int bits : {4, 8}) {
    for (const int group : {32, 64, 128}) {
      for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
        all.push_back({bits, group, dtype, 16, group});
        all.push_back({bits, group, dtype, 48, 3 * group});
      }
    }
  }
  return all;
}

// A row-major matrix of random codes and small parameters.
struct RowMajor {
  explicit RowMajor(const Case& c) : format(QuantFormat::affine(c.bits, c.group_size, c.dtype)) {
    const Parts<uint64_t> bytes = part_bytes(format, c.rows, c.cols);
    std::mt19937 random(7);
    codes.resize(bytes.codes);
    for (std::byte& b : codes) b = static_cast<std::byte>(random());
    for (std::vector<std::byte>* part : {&scales, &biases}) {
      part->resize(bytes.scales);
      const size_t step = static_cast<size_t>(dtype_bits(c.dtype)) / 8;
      for (size_t at = 0; at < part->size(); at += step) {
        const float value = static_cast<float>(random() % 4096) / 1024.0f - 2.0f;
        const Bf16 bf16 = to_bf16(value);
        const F16 f16 = to_f16(value);
        const void* from = c.dtype == DType::kF32    ? static_cast<const void*>(&value)
                           : c.dtype == DType::kBf16 ? static_cast<const void*>(&bf16)
                                                     : static_cast<const void*>(&f16);
        std::memcpy(part->data() + at, from, step);
      }
    }
  }
  QuantFormat format;
  std::vector<std::byte> codes, scales, biases;
};

Tensor copy_to(std::unique_ptr<Buffer>& buffer, const std::vector<std::byte>& bytes, DType dtype) {
  const auto* begin = reinterpret_cast<const uint8_t*>(bytes.data());
  buffer = std::make_unique<HostBytes>(std::vector<uint8_t>(begin, begin + bytes.size()));
  const auto elements = static_cast<int64_t>(bytes.size()) * 8 / dtype_bits(dtype);
  return Tensor::view(*buffer, 0, {elements}, dtype);
}

TEST(Tiled, DecodesToTheSameRowsAndGivesTheBytesBack) {
  for (const Case& c : cases()) {
    const RowMajor m(c);
    const QuantFormat tiled_format = m.format.with_order(WeightOrder::kTiled);
    ASSERT_TRUE(tiled::is_tileable(m.format, c.rows));
    const uint64_t total = weight_bytes(m.format, c.rows, c.cols);
    ASSERT_EQ(weight_bytes(tiled_format, c.rows, c.cols), total);
    std::vector<std::byte> tiles(total);
    tiled::tile(tiles, {m.codes, m.scales, m.biases}, m.format, c.rows, c.cols);

    std::unique_ptr<Buffer> buffers[4];
    const Weight rows{.parts = {.codes = copy_to(buffers[0], m.codes, DType::kU8),
                                .scales = copy_to(buffers[1], m.scales, c.dtype),
                                .offsets = copy_to(buffers[2], m.biases, c.dtype)},
                      .format = m.format,
                      .rows = c.rows,
                      .cols = c.cols};
    const Weight panels{.parts = {.codes = copy_to(buffers[3], tiles, DType::kU8)},
                        .format = tiled_format,
                        .rows = c.rows,
                        .cols = c.cols};
    std::vector<float> expected(static_cast<size_t>(c.cols)), actual(expected);
    for (int64_t row = 0; row < c.rows; ++row) {
      decode_row(rows, row, expected);
      decode_row(panels, row, actual);
      ASSERT_EQ(expected, actual) << tiled_format.to_string() << " row " << row;
    }
    std::vector<std::byte> codes(m.codes.size()), scales(m.scales.size()), biases(m.biases.size());
    tiled::untile(codes, scales, biases, tiles, m.format, c.rows, c.cols);
    EXPECT_EQ(codes, m.codes);
    EXPECT_EQ(scales, m.scales);
    EXPECT_EQ(biases, m.biases);
  }
}

TEST(Tiled, PiecesOfAMatrixAreArrangedAsTheWhole) {
  RowMajor m({4, 64, DType::kBf16, 272, 4096});
  Weight stored = lay_out(m.format, 272, 4096);
  Weight made = lay_out(m.format.with_order(WeightOrder::kTiled), 272, 4096);
  std::vector<std::byte> whole(made.size_bytes());
  std::vector<std::byte> pieces(made.size_bytes());
  const Parts<std::span<std::byte>> bytes = {
      .codes = m.codes, .scales = m.scales, .offsets = m.biases};
  arrange_matrix(made, {.codes = whole}, stored, bytes);
  const int64_t step = rows_arranged_at_once(made, stored);
  EXPECT_EQ(step % 16, 0);
  EXPECT_LT(step, 136);  // several, the last of them shorter
  for (int64_t row = 0; row < 272; row += step) {
    arrange_rows(made, {.codes = pieces}, stored, bytes, row, std::min(step, 272 - row));
  }
  EXPECT_EQ(pieces, whole);
}

// Scales of whole blocks of rows, or of a matrix, go with no rows.
TEST(Tiled, RowsThatShareNumbersAreArrangedTogether) {
  const QuantFormat nvfp4 = QuantFormat::of(*find_format("nvfp4_gguf")).with_outer_scale();
  const Weight shared = lay_out(nvfp4, 4096, 4096);
  EXPECT_EQ(rows_arranged_at_once(shared, shared), 4096);
}

TEST(Tiled, ALineHoldsFourNeighbouringColumnsOfEachRowInALane) {
  const QuantFormat format = QuantFormat::affine(4, 32, DType::kBf16);
  std::vector<std::byte> codes(16 * 16), params(16 * 2), tiles(16 * 16 + 64);
  codes[3 * 16 + 2] = std::byte{0x21};  // row 3: column 4 holds 1, column 5 holds 2
  tiled::tile(tiles, {codes, params, params}, format, 16, 32);
  EXPECT_EQ(tiles[3 * 4 + 0], std::byte{0x10});
  EXPECT_EQ(tiles[3 * 4 + 1], std::byte{0x20});
}

TEST(Tiled, TakesWholePanelsOfFourOrEightBits) {
  EXPECT_FALSE(tiled::is_tileable(QuantFormat::affine(4, 64, DType::kBf16), 24));
  EXPECT_FALSE(tiled::is_tileable(QuantFormat::affine(3, 64, DType::kBf16), 32));
  EXPECT_FALSE(tiled::is_tileable(QuantFormat::plain(DType::kBf16), 32));
}

}  // namespace
}  // namespace moeflux
