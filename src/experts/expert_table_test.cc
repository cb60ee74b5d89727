#include "experts/expert_table.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "backend/host_buffer.h"

namespace moeflux {
namespace {

ExpertMatrix matrix(const QuantFormat& format, int64_t rows, int64_t cols) {
  ExpertMatrix result;
  result.format = format;
  result.rows = rows;
  result.cols = cols;
  return result;
}

ExpertLayer make_layer(const QuantFormat& format, int32_t experts) {
  ExpertLayer layer;
  layer.num_experts = experts;
  layer.gate = matrix(format, 24, 64);
  layer.up = matrix(format, 24, 64);
  layer.down = matrix(format, 64, 64);
  lay_out_slot(layer);
  return layer;
}

const QuantFormat kThreeBits = QuantFormat::affine(3, 32, DType::kBf16);

TEST(ExpertTable, PartsOfASlotAreAlignedInOrderAndApart) {
  for (const QuantFormat& format : {QuantFormat::plain(DType::kF16), kThreeBits}) {
    const ExpertLayer layer = make_layer(format, 2);
    size_t end = 0;
    for (const ExpertMatrix* m : {&layer.gate, &layer.up, &layer.down}) {
      const WeightBytes bytes = weight_bytes(m->format, m->rows, m->cols);
      EXPECT_GE(m->data_offset, end);
      end = m->data_offset + bytes.data;
      if (bytes.scales > 0) {
        EXPECT_GE(m->scales_offset, end);
        EXPECT_GE(m->biases_offset, m->scales_offset + bytes.scales);
        end = m->biases_offset + bytes.biases;
        EXPECT_EQ(m->scales_offset % 64 + m->biases_offset % 64, 0u);
      }
      EXPECT_EQ(m->data_offset % 64, 0u);
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
  EXPECT_EQ(weights.gate.data.offset_bytes, layer.slot_bytes);
  EXPECT_EQ(weights.gate.data.shape, (Shape{24, 64 * 3 / 32}));
  EXPECT_EQ(weights.down.biases.shape, (Shape{64, 2}));
  EXPECT_LE(weights.down.biases.offset_bytes + weights.down.biases.size_bytes(),
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
std::vector<std::byte> random_parts(const ExpertMatrix& m, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(weight_bytes(m.format, m.rows, m.cols).total());
  for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 0x3fu);
  return bytes;
}

/// A row-major view of parts that lie one after another, as they arrive.
Weight as_arrived(const ExpertMatrix& m, Buffer& buffer) {
  const WeightBytes bytes = weight_bytes(m.format, m.rows, m.cols);
  ExpertMatrix packed = m;
  packed.data_offset = 0;
  packed.scales_offset = bytes.data;
  packed.biases_offset = bytes.data + bytes.scales;
  return packed.view(buffer, 0);
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
    std::memcpy((*slot)->host_data() + layer.down.data_offset, down.data(), down.size());
    const std::vector<std::byte> gate = random_parts(rows.gate, 2);
    std::memcpy((*slot)->host_data() + layer.gate.data_offset, gate.data(), gate.size());

    std::vector<std::byte> scratch(layer.slot_bytes);
    arrange_slot(layer, {(*slot)->host_data(), layer.slot_bytes}, scratch);
    const ExpertWeights weights = layer.weights(ExpertId{0}, **slot, 0);
    EXPECT_EQ(weights.down.format.order, WeightOrder::kTiled);
    EXPECT_EQ(decoded(weights.down), decoded(as_arrived(rows.down, **arrived))) << bits;
    EXPECT_EQ(std::memcmp((*slot)->host_data() + layer.gate.data_offset, gate.data(), gate.size()),
              0);
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
