#include "plan/layer_split.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

using Devices = std::vector<size_t>;

ModelSpec layers(size_t count) {
  ModelSpec spec;
  spec.layers.resize(count);
  return spec;
}

TEST(LayerSplit, EachDeviceGetsAsMuchAsItHasOfTheMemory) {
  const std::vector<uint64_t> bytes(8, 10);
  EXPECT_EQ(split_layers(layers(8), bytes, std::vector<uint64_t>{100, 100}),
            (Devices{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(split_layers(layers(8), bytes, std::vector<uint64_t>{300, 100}),
            (Devices{0, 0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(split_layers(layers(8), bytes, std::vector<uint64_t>{10, 20, 50}),
            (Devices{0, 1, 1, 2, 2, 2, 2, 2}));
}

TEST(LayerSplit, LargeLayersAreFewer) {
  const std::vector<uint64_t> bytes{60, 10, 10, 10, 10, 10, 10};
  EXPECT_EQ(split_layers(layers(7), bytes, std::vector<uint64_t>{100, 100}),
            (Devices{0, 1, 1, 1, 1, 1, 1}));
}

TEST(LayerSplit, DevicesWithoutMemoryOfTheirOwnGetTheSame) {
  EXPECT_EQ(split_layers(layers(3), std::vector<uint64_t>(3, 5), std::vector<uint64_t>(3, 0)),
            (Devices{0, 1, 2}));
}

TEST(LayerSplit, FewerLayersThanDevicesLeaveSomeWithout) {
  EXPECT_EQ(split_layers(layers(1), std::vector<uint64_t>{5}, std::vector<uint64_t>(4, 9)),
            (Devices{1}));
}

TEST(LayerSplit, APassOverALayerIsWhereItsWeightsAre) {
  ModelSpec spec = layers(6);
  spec.layers[4].pass_over = 0;
  spec.layers[5].pass_over = 3;
  EXPECT_EQ(split_layers(spec, std::vector<uint64_t>{10, 10, 10, 10, 5, 5},
                         std::vector<uint64_t>{100, 100}),
            (Devices{0, 0, 1, 1, 0, 1}));
}

}  // namespace
}  // namespace moeflux
