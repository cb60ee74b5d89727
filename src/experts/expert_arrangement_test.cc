#include "experts/expert_arrangement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "backend/host_buffer.h"
#include "experts/expert_world_test_util.h"
#include "io/aligned_read.h"
#include "io/async_reader.h"

namespace moeflux {
namespace {

constexpr ExpertId kOnly{0};

ExpertLayer make_layer(const QuantFormat& format) {
  ExpertLayer layer;
  layer.num_experts = 1;
  layer.gate = lay_out(format, 24, 64);
  layer.up = lay_out(format, 24, 64);
  layer.down = lay_out(format, 64, 64);
  lay_out_slot(layer);
  return layer;
}

const QuantFormat kThreeBits = QuantFormat::affine(3, 32, DType::kBf16);

// Nobody knows where in a page a file's tensor begins.
void add_extent(ExpertLayer& layer, uint64_t bytes, size_t slot_offset) {
  const uint64_t begin = 10'001 * (layer.extents.size() + 1);
  layer.extents.push_back({0, begin, bytes, slot_offset});
  ++layer.extents_per_expert;
}

/// Memory of a page's alignment for the layer's only expert.
class Memory {
 public:
  explicit Memory(const ExpertLayer& layer)
      : begin_(bytes_.reserve(landing_bytes(layer))), landed_(layer, kOnly, begin_) {}
  const LandedExpert& landed() const { return landed_; }
  std::byte* begin() const { return begin_; }

 private:
  BounceBuffer bytes_;
  std::byte* begin_;
  LandedExpert landed_;
};

void arrange_all(const ExpertLayer& layer, const Memory& memory, std::span<std::byte> slot) {
  for (int64_t task = 0; task < kArrangeTasks; ++task) {
    arrange(layer, memory.landed(), slot, task);
  }
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
std::vector<std::byte> random_bytes(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 0x3fu);
  return bytes;
}

TEST(LandedExpert, EveryExtentHasItsPagesToItselfAndItsPlaceInThem) {
  ExpertLayer layer = make_layer(kThreeBits);
  layer.arrangement = ExpertArrangement::kInPlace;
  for (const uint64_t bytes : {1u, 4095u, 4096u, 8193u, 77u}) {
    add_extent(layer, bytes, 100'000 * layer.extents.size());
  }
  const Memory memory(layer);
  size_t end = 0;
  for (const ExpertExtent& extent : layer.extents) {
    const auto begin = static_cast<size_t>(memory.landed().at(extent.slot_offset) - memory.begin());
    EXPECT_EQ(begin % kDirectAlignment, extent.offset % kDirectAlignment);
    EXPECT_GE(begin / kDirectAlignment * kDirectAlignment, end);
    end = (begin + extent.bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
    EXPECT_EQ(memory.landed().at(extent.slot_offset + extent.bytes - 1),
              memory.begin() + begin + extent.bytes - 1);
  }
  EXPECT_LE(end, landing_bytes(layer));
}

TEST(LandedExpert, ExtentsThatAdjoinInTheFileAdjoinHere) {
  ExpertLayer layer = make_layer(kThreeBits);
  layer.arrangement = ExpertArrangement::kInPlace;
  layer.extents = {{0, 5000, 300, 0}, {0, 5300, 9000, 300}, {1, 14300, 10, 9300}};
  layer.extents_per_expert = 3;
  const Memory memory(layer);
  EXPECT_EQ(memory.landed().at(300), memory.landed().at(299) + 1);
  EXPECT_NE(memory.landed().at(9300), memory.landed().at(9299) + 1);  // another file
}

TEST(LandedExpert, LiesAsItsSlotHasItWhereItStaysAsStored) {
  ExpertLayer layer = make_layer(kThreeBits);
  add_extent(layer, 77, 0);
  add_extent(layer, 4096, 77);
  const Memory memory(layer);
  EXPECT_EQ(memory.landed().at(78), memory.begin() + 78);
}

TEST(ExpertInPlace, StaysInItsLayoutWhereAPartIsNotAtItsElements) {
  for (const uint64_t odd : {0u, 1u}) {
    ExpertLayer layer = make_layer(QuantFormat::plain(DType::kF16));
    for (const Weight* matrix : {&layer.gate, &layer.up, &layer.down}) {
      const Tensor& codes = matrix->parts.codes;
      layer.extents.push_back(
          {0, 1000 + odd + codes.offset_bytes, codes.size_bytes(), codes.offset_bytes});
    }
    layer.extents_per_expert = 3;
    compute_in_place(layer, 1e6);
    EXPECT_EQ(layer.arrangement,
              odd != 0 ? ExpertArrangement::kAsStored : ExpertArrangement::kInPlace);
  }
}

TEST(ExpertInPlace, PagesOfAPackStayAsTheyAre) {
  ExpertLayer layer = make_layer(QuantFormat::plain(DType::kF16));
  layer.extents = {{0, 3 * kDirectAlignment, layer.slot_bytes, 0}};
  layer.extents_per_expert = 1;
  const size_t bytes = layer.slot_bytes;
  compute_in_place(layer, 1e6);
  EXPECT_EQ(layer.arrangement, ExpertArrangement::kAsStored);
  EXPECT_EQ(layer.slot_bytes, bytes);
}

/// Multiplies rows of 4 bits as tiles.
class RowsAsTilesDevice : public HostMemoryDevice {
 public:
  bool multiplies_rows_as_tiles(const QuantFormat& stored) const override {
    return stored.bits == 4;
  }
};

TEST(ExpertInPlace, ComputesWithRowsInsteadOfTilesWhereTheDeviceDoesTheSame) {
  const RowsAsTilesDevice device;
  for (const int bits : {4, 8}) {
    const QuantFormat stored = QuantFormat::affine(bits, 64, DType::kBf16);
    ExpertTable table;
    ExpertLayer& layer = table.layers.emplace_back();
    layer.num_experts = 1;
    layer.gate = layer.up = lay_out(stored.with_order(WeightOrder::kTiled), 1024, 1024);
    layer.down = layer.gate;
    lay_out_slot(layer);
    layer.arrangement = ExpertArrangement::kRowMajorParts;
    std::vector<Weight> rows;
    for (const Weight* matrix : {&layer.gate, &layer.up, &layer.down}) {
      rows.push_back(lay_out(stored, 1024, 1024));
      place_parts(rows.back(), matrix->parts.codes.offset_bytes, 1);
      for (const PartRole role : kPartRoles) {
        const Tensor& part = rows.back().parts[role];
        if (rows.back().has(role)) {
          layer.extents.push_back(
              {0, 1'000'004 * (layer.extents.size() + 1), part.size_bytes(), part.offset_bytes});
        }
      }
    }
    layer.extents_per_expert = static_cast<int32_t>(layer.extents.size());
    const size_t tiled_bytes = layer.slot_bytes;

    EXPECT_EQ(compute_as_stored(table, device), bits == 4);
    EXPECT_EQ(layer.arrangement == ExpertArrangement::kInPlace, bits == 4);
    if (bits == 8) continue;
    EXPECT_GT(layer.slot_bytes, tiled_bytes);
    EXPECT_LE(layer.slot_bytes, tiled_bytes + tiled_bytes / 16);
    for (size_t m = 0; m < rows.size(); ++m) {
      const Weight matrix = layer.matrix_of(kOnly, m);
      EXPECT_EQ(matrix.format, stored);
      for (const PartRole role : kPartRoles) {
        if (!matrix.has(role)) continue;
        EXPECT_EQ(matrix.parts[role].offset_bytes,
                  landing_offset(layer.extents_of(kOnly), rows[m].parts[role].offset_bytes));
      }
    }
  }
}

TEST(ExpertArrangement, RowMajorPartsBecomeTilesWhereTheLayoutHasThem) {
  for (const int bits : {4, 8}) {
    const QuantFormat stored = QuantFormat::affine(bits, 32, DType::kBf16);
    ExpertLayer layer = make_layer(stored);
    Weight rows = layer.down;
    layer.down.format = stored.with_order(WeightOrder::kTiled);  // 24 rows of gate and up are not
    layer.down_bias = {DType::kBf16, 64, 0};
    layer.arrangement = ExpertArrangement::kRowMajorParts;
    lay_out_slot(layer);
    for (const Weight* matrix : {&layer.gate, &layer.up}) {
      for (const PartRole role : kPartRoles) {
        const Tensor& part = matrix->parts[role];
        if (matrix->has(role)) add_extent(layer, part.size_bytes(), part.offset_bytes);
      }
    }
    place_parts(rows, layer.down.parts.codes.offset_bytes, 1);
    for (const PartRole role : kPartRoles) {
      const Tensor& part = rows.parts[role];
      if (rows.has(role)) add_extent(layer, part.size_bytes(), part.offset_bytes);
    }
    add_extent(layer, 128, layer.down_bias.offset);

    const Memory memory(layer);
    auto expected = allocate_host_buffer(layer.slot_bytes);
    auto slot = allocate_host_buffer(layer.slot_bytes);
    ASSERT_TRUE(expected.ok() && slot.ok());
    for (const ExpertExtent& extent : layer.extents) {
      const auto bytes = random_bytes(extent.bytes, static_cast<uint32_t>(extent.slot_offset));
      std::copy(bytes.begin(), bytes.end(), memory.landed().at(extent.slot_offset));
      std::copy(bytes.begin(), bytes.end(), (*expected)->host_data() + extent.slot_offset);
    }
    arrange_all(layer, memory, {(*slot)->host_data(), layer.slot_bytes});
    const ExpertWeights weights = layer.weights(kOnly, **slot, 0);
    EXPECT_EQ(weights.down.format.order, WeightOrder::kTiled);
    EXPECT_EQ(decoded(weights.down), decoded(rows.at(**expected, 0))) << bits;
    EXPECT_EQ(decoded(weights.gate), decoded(layer.gate.at(**expected, 0)));
    EXPECT_EQ(decoded(weights.up), decoded(layer.up.at(**expected, 0)));
    EXPECT_EQ(std::memcmp((*slot)->host_data() + layer.down_bias.offset,
                          (*expected)->host_data() + layer.down_bias.offset, 128),
              0);
  }
}

// Gate's rows and up's come in turn, each part by part, and their biases do.
TEST(ExpertArrangement, AlternateRowsAreDealtToGateAndUp) {
  constexpr auto kRow = [](int64_t r) { return static_cast<std::byte>(r); };
  for (const QuantFormat& format : {kThreeBits, QuantFormat::plain(DType::kF16)}) {
    ExpertLayer layer = make_layer(format);
    layer.gate_bias = layer.up_bias = {DType::kBf16, 24, 0};
    layer.down_bias = {DType::kBf16, 64, 0};
    layer.arrangement = ExpertArrangement::kAlternateRows;
    lay_out_slot(layer);
    layer.stored = {layer.gate, layer.up, layer.down};
    struct Rows {
      int64_t count;
      size_t bytes;
    };
    std::vector<Rows> pieces;
    for (const auto& [matrix, times] : {std::pair(layer.gate, 2), std::pair(layer.down, 1)}) {
      for (const PartRole role : kPartRoles) {
        if (!matrix.has(role)) continue;
        const auto rows = static_cast<size_t>(matrix.rows);
        pieces.push_back({matrix.rows * times, matrix.parts[role].size_bytes() / rows});
      }
    }
    pieces.insert(pieces.end(), {{48, 2}, {64, 2}});
    size_t at = 0;
    for (const Rows& piece : pieces) {
      const size_t bytes = static_cast<size_t>(piece.count) * piece.bytes;
      add_extent(layer, bytes, at);
      at += bytes;
    }
    const Memory memory(layer);
    for (size_t i = 0; i < pieces.size(); ++i) {
      std::byte* to = memory.landed().at(layer.extents[i].slot_offset);
      for (int64_t r = 0; r < pieces[i].count; ++r, to += pieces[i].bytes) {
        std::fill_n(to, pieces[i].bytes, kRow(r));
      }
    }
    std::vector<std::byte> slot(layer.slot_bytes);
    arrange_all(layer, memory, slot);
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

}  // namespace
}  // namespace moeflux
