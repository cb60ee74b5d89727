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

const QuantFormat kAffine3 = QuantFormat::affine(3, 32, DType::kBf16);

TEST(ExpertTable, PartsOfASlotAreAlignedInOrderAndApart) {
  for (const QuantFormat& format : {QuantFormat::plain(DType::kF16), kAffine3}) {
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
  const ExpertLayer layer = make_layer(kAffine3, 2);
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
  table.layers = {make_layer(kAffine3, 3), ExpertLayer{},
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

}  // namespace
}  // namespace moeflux
