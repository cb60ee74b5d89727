#include "convert/pack/pack_gain.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

constexpr uint64_t kPage = 4096;

/// Experts of so many reads in places of their own, `bytes` in all.
ExpertLayer layer_of(int reads, uint64_t bytes) {
  ExpertLayer layer;
  layer.num_experts = 2;
  layer.arrangement = ExpertArrangement::kInPlace;
  layer.extents_per_expert = reads;
  const uint64_t each = bytes / static_cast<uint64_t>(reads);
  for (int expert = 0; expert < layer.num_experts; ++expert) {
    for (int i = 0; i < reads; ++i) {
      const auto place = static_cast<uint64_t>(expert * reads + i);
      layer.extents.push_back({0, place * (each + kPage), each, static_cast<size_t>(i) * each});
    }
  }
  return layer;
}

double gain_of(const ExpertLayer& layer) {
  ExpertTable table;
  table.layers = {ExpertLayer{}, layer};  // a dense layer says nothing
  return pack_gain(table);
}

constexpr uint64_t kMeasured = 1769472;  // an expert of the file whose speeds were measured

TEST(PackGain, AgreesWithWhatWasMeasured) {
  EXPECT_NEAR(1.0 / gain_of(layer_of(9, kMeasured)), 0.89, 0.03);
  EXPECT_NEAR(1.0 / gain_of(layer_of(3, kMeasured)), 1.0, 0.05);
  ExpertLayer arranged = layer_of(9, kMeasured);
  arranged.arrangement = ExpertArrangement::kRowMajorParts;
  EXPECT_NEAR(1.0 / gain_of(arranged), 0.76, 0.03);
}

TEST(PackGain, OneReadHasNothingToGain) {
  EXPECT_EQ(gain_of(layer_of(1, kMeasured)), 1.0);
  ExpertLayer adjoining = layer_of(3, kMeasured);  // as packs spell gate, up and down
  for (size_t i = 1; i < adjoining.extents.size(); ++i) {
    const ExpertExtent& before = adjoining.extents[i - 1];
    adjoining.extents[i].offset = before.offset + before.bytes;
  }
  EXPECT_EQ(gain_of(adjoining), 1.0);
  EXPECT_EQ(pack_gain({}), 1.0);
}

TEST(PackGain, ReadsWeighMoreInSmallExpertsAndLessInLargeOnes) {
  EXPECT_GT(gain_of(layer_of(9, kMeasured / 4)), gain_of(layer_of(9, kMeasured)));
  EXPECT_LT(gain_of(layer_of(9, kMeasured * 16)), 1.02);
  EXPECT_EQ(gain_of(layer_of(9, 9 * 512)), 2.0);  // no more was measured
}

TEST(PackHint, IsALineOnlyWhereExpertsStreamAndGain) {
  ExpertTable nine;
  nine.layers = {layer_of(9, kMeasured)};
  const std::string line = pack_hint("model", nine, true);
  for (const char* piece : {"model: ", "9 reads", "moeflux pack", "1.1 times"}) {
    EXPECT_NE(line.find(piece), std::string::npos) << line;
  }
  EXPECT_EQ(pack_hint("model", nine, false), "");
  ExpertTable three;  // a GGUF file's
  three.layers = {layer_of(3, kMeasured)};
  EXPECT_EQ(pack_hint("model", three, true), "");
}

}  // namespace
}  // namespace moeflux
