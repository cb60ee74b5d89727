#include "experts/expert_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "backend/host_buffer.h"

namespace moeflux {
namespace {

ExpertLayer make_layer(const QuantFormat& format, int32_t experts) {
  ExpertLayer layer;
  layer.num_experts = experts;
  layer.gate = lay_out(format, 24, 64);
  layer.up = lay_out(format, 24, 64);
  layer.down = lay_out(format, 64, 64);
  lay_out_slot(layer);
  return layer;
}

const QuantFormat kThreeBits = QuantFormat::affine(3, 32, DType::kBf16);

TEST(ExpertTable, PartsOfASlotAreAlignedInOrderAndApart) {
  for (const QuantFormat& format : {QuantFormat::plain(DType::kF16), kThreeBits}) {
    const ExpertLayer layer = make_layer(format, 2);
    size_t end = 0;
    for (const Weight* m : {&layer.gate, &layer.up, &layer.down}) {
      for (const PartRole role : kPartRoles) {
        if (!m->has(role)) continue;
        EXPECT_GE(m->parts[role].offset_bytes, end);
        EXPECT_EQ(m->parts[role].offset_bytes % 64, 0u);
        end = m->parts[role].offset_bytes + m->parts[role].size_bytes();
      }
    }
    EXPECT_GE(layer.slot_bytes, end);
    EXPECT_LT(layer.slot_bytes, end + 64);
  }
}

TEST(ExpertTable, ViewsOfASlotStayInsideIt) {
  const ExpertLayer layer = make_layer(kThreeBits, 2);
  auto buffer = allocate_host_buffer(2 * layer.slot_bytes);
  ASSERT_TRUE(buffer.ok());
  const ExpertWeights weights = layer.weights(ExpertId{1}, **buffer, layer.slot_bytes);
  EXPECT_EQ(weights.expert, ExpertId{1});
  EXPECT_EQ(weights.gate.parts.codes.offset_bytes, layer.slot_bytes);
  EXPECT_EQ(weights.gate.parts.codes.shape, (Shape{24, 64 * 3 / 32}));
  EXPECT_EQ(weights.down.parts.offsets.shape, (Shape{64, 2}));
  EXPECT_LE(weights.down.parts.offsets.offset_bytes + weights.down.parts.offsets.size_bytes(),
            2 * layer.slot_bytes);
}

TEST(ExpertTable, CountsExpertsAndBytesOverLayers) {
  ExpertTable table;
  table.layers = {make_layer(kThreeBits, 3), ExpertLayer{},
                  make_layer(QuantFormat::plain(DType::kF32), 5)};
  const uint64_t three_bits = (2 * 24 + 64) * (64 * 3 / 8 + 2 * 2 * 2);
  const uint64_t floats = (2 * 24 + 64) * 64 * 4;
  EXPECT_EQ(table.layers[0].bytes_per_expert(), three_bits);
  EXPECT_EQ(table.layers[2].bytes_per_expert(), floats);
  EXPECT_EQ(table.layers[2].parameters_per_expert(), floats / 4);
  EXPECT_EQ(table.num_experts_total(), 8u);
  EXPECT_EQ(table.bytes_total(), 3 * three_bits + 5 * floats);
  EXPECT_EQ(table.slot_bytes_max(), table.layers[2].slot_bytes);
}

std::vector<float> decoded(const Weight& weight) {
  const auto cols = static_cast<size_t>(weight.cols);
  std::vector<float> values(static_cast<size_t>(weight.rows) * cols);
  for (int64_t row = 0; row < weight.rows; ++row) {
    decode_row(weight, row, std::span(values).subspan(static_cast<size_t>(row) * cols, cols));
  }
  return values;
}

// Random codes, and parameters of two small bytes each: never NaN.
std::vector<std::byte> random_parts(const Weight& m, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(weight_bytes(m.format, m.rows, m.cols));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 0x3fu);
  return bytes;
}

/// A row-major view of parts that lie one after another, as they arrive.
Weight as_arrived(const Weight& m, Buffer& buffer) {
  Weight packed = m;
  place_parts(packed, 0, 1);
  return packed.at(buffer, 0);
}

TEST(ExpertTable, RowMajorPartsBecomeTilesWhereTheLayoutHasThem) {
  for (const int bits : {4, 8}) {
    const QuantFormat stored = QuantFormat::affine(bits, 32, DType::kBf16);
    const ExpertLayer rows = make_layer(stored, 1);
    ExpertLayer layer = rows;
    layer.down.format = stored.with_order(WeightOrder::kTiled);  // 24 rows of gate and up are not
    layer.arrangement = ExpertArrangement::kRowMajorParts;
    lay_out_slot(layer);
    auto slot = allocate_host_buffer(layer.slot_bytes);
    auto arrived = allocate_host_buffer(layer.slot_bytes);
    ASSERT_TRUE(slot.ok() && arrived.ok());
    const std::vector<std::byte> down = random_parts(rows.down, 1);
    std::memcpy((*arrived)->host_data(), down.data(), down.size());
    std::memcpy((*slot)->host_data() + layer.down.parts.codes.offset_bytes, down.data(),
                down.size());
    const std::vector<std::byte> gate = random_parts(rows.gate, 2);
    std::memcpy((*slot)->host_data() + layer.gate.parts.codes.offset_bytes, gate.data(),
                gate.size());

    std::vector<std::byte> scratch(layer.slot_bytes);
    arrange_slot(layer, {(*slot)->host_data(), layer.slot_bytes}, scratch);
    const ExpertWeights weights = layer.weights(ExpertId{0}, **slot, 0);
    EXPECT_EQ(weights.down.format.order, WeightOrder::kTiled);
    EXPECT_EQ(decoded(weights.down), decoded(as_arrived(rows.down, **arrived))) << bits;
    EXPECT_EQ(std::memcmp((*slot)->host_data() + layer.gate.parts.codes.offset_bytes, gate.data(),
                          gate.size()),
              0);
  }
}

// Gate's rows and up's come in turn, each part by part, and their biases do.
TEST(ExpertTable, AlternateRowsAreDealtToGateAndUp) {
  constexpr auto kRow = [](int64_t r) { return static_cast<std::byte>(r); };
  for (const QuantFormat& format : {kThreeBits, QuantFormat::plain(DType::kF16)}) {
    ExpertLayer layer = make_layer(format, 1);
    layer.gate_bias = layer.up_bias = {DType::kBf16, 24, 0};
    layer.down_bias = {DType::kBf16, 64, 0};
    layer.arrangement = ExpertArrangement::kAlternateRows;
    lay_out_slot(layer);
    std::vector<std::byte> slot(layer.slot_bytes);
    size_t at = 0;
    const auto put_rows = [&](int64_t rows, uint64_t part, int64_t times) {
      for (int64_t r = 0; r < rows * times; ++r, at += part / static_cast<uint64_t>(rows)) {
        std::fill_n(slot.begin() + static_cast<std::ptrdiff_t>(at),
                    part / static_cast<uint64_t>(rows), kRow(r));
      }
    };
    for (const auto& [matrix, times] : {std::pair(layer.gate, 2), std::pair(layer.down, 1)}) {
      for (const PartRole role : kPartRoles) {
        if (matrix.has(role)) put_rows(matrix.rows, matrix.parts[role].size_bytes(), times);
      }
    }
    put_rows(24, 48, 2);
    put_rows(64, 128, 1);
    std::vector<std::byte> scratch(layer.slot_bytes);
    arrange_slot(layer, slot, scratch);
    const auto expect_rows = [&](std::span<const std::byte> part, int64_t rows, int64_t step,
                                 int64_t first) {
      const size_t row_bytes = part.size() / static_cast<size_t>(rows);
      for (size_t i = 0; i < part.size(); ++i) {
        ASSERT_EQ(part[i], kRow(static_cast<int64_t>(i / row_bytes) * step + first));
      }
    };
    for (const PartRole role : kPartRoles) {
      if (!layer.gate.has(role)) continue;
      expect_rows(layer.gate.bytes_in(slot.data())[role], 24, 2, 0);
      expect_rows(layer.up.bytes_in(slot.data())[role], 24, 2, 1);
      expect_rows(layer.down.bytes_in(slot.data())[role], 64, 1, 0);
    }
    expect_rows(std::span(slot).subspan(layer.gate_bias.offset, 48), 24, 2, 0);
    expect_rows(std::span(slot).subspan(layer.up_bias.offset, 48), 24, 2, 1);
    expect_rows(std::span(slot).subspan(layer.down_bias.offset, 128), 64, 1, 0);
  }
}

TEST(ExpertTable, TilesThatArriveAsTheyAreStayAsTheyAre) {
  ExpertLayer layer = make_layer(QuantFormat::affine(4, 32, DType::kBf16), 1);
  const size_t row_major_bytes = layer.bytes_per_expert();
  layer.down.format = layer.down.format.with_order(WeightOrder::kTiled);
  lay_out_slot(layer);
  EXPECT_EQ(layer.bytes_per_expert(), row_major_bytes);
  std::vector<std::byte> slot(layer.slot_bytes, std::byte{7});
  arrange_slot(layer, slot, {});
  EXPECT_EQ(slot, std::vector<std::byte>(layer.slot_bytes, std::byte{7}));
}

}  // namespace
}  // namespace moeflux
