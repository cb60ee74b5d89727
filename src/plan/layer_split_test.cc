#include "plan/layer_split.h"

#include <gtest/gtest.h>

#include "backend/trace/trace_device.h"
#include "base/units.h"
#include "model/family/public_models.h"

namespace moeflux {
namespace {

using Devices = std::vector<size_t>;

ModelSpec layers(size_t count) {
  ModelSpec spec;
  spec.layers.resize(count);
  return spec;
}

/// Layers of 10 bytes that every token reads, and 90 of experts, of which it reads 9.
constexpr SplitLayer kLayer{.dense = 10, .experts = 90, .token_experts = 9};

Devices split(size_t count, const std::vector<CardMemory>& cards, SplitLayer layer = kLayer) {
  return split_layers(layers(count), std::vector<SplitLayer>(count, layer), cards);
}

/// How many layers each of the devices has.
std::vector<size_t> counts(const Devices& devices, size_t cards) {
  std::vector<size_t> count(cards);
  for (const size_t device : devices) ++count[device];
  return count;
}

TEST(LayerSplit, DevicesThatHoldTheirLayersGetTheSame) {
  EXPECT_EQ(split(8, {{1000}, {1000}}), (Devices{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(split(8, {{9000}, {1000}}), (Devices{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(split(8, {{900}, {900}, {900}, {900}}), (Devices{0, 0, 1, 1, 2, 2, 3, 3}));
}

TEST(LayerSplit, AFullDeviceLeavesLayersToOthers) {
  EXPECT_EQ(counts(split(8, {{1000}, {250}}), 2), (std::vector<size_t>{6, 2}));
  EXPECT_EQ(counts(split(8, {{450}, {900, 500}}), 2), (std::vector<size_t>{4, 4}));
}

TEST(LayerSplit, WhereNoneHasRoomEachGetsAsMuchAsItHasOfTheMemory) {
  EXPECT_EQ(counts(split(11, {{480}, {180}}), 2), (std::vector<size_t>{8, 3}));
  EXPECT_EQ(counts(split(12, {{120}, {240}, {360}}), 3), (std::vector<size_t>{2, 4, 6}));
}

TEST(LayerSplit, AFasterDeviceGetsMore) {
  const CardMemory slow{.free_bytes = 9000, .bytes_per_second = 400e9};
  const CardMemory fast{.free_bytes = 9000, .bytes_per_second = 800e9};
  const std::vector<size_t> count = counts(split(12, {slow, fast}), 2);
  EXPECT_GE(count[1], 8u);
}

TEST(LayerSplit, LargeLayersAreFewer) {
  std::vector<SplitLayer> sizes(7, SplitLayer{.dense = 10});
  sizes[0].dense = 60;
  EXPECT_EQ(split_layers(layers(7), sizes, std::vector<CardMemory>{{100}, {100}}),
            (Devices{0, 1, 1, 1, 1, 1, 1}));
}

// A prompt's tokens do not read it, and devices share a prompt alone.
TEST(LayerSplit, AHeadIsNoWorkOfAPrompt) {
  std::vector<SplitLayer> sizes(8, kLayer);
  sizes.back().dense += 60;
  sizes.back().head = 60;
  EXPECT_EQ(split_layers(layers(8), sizes, std::vector<CardMemory>{{1000}, {1000}}),
            (Devices{0, 0, 0, 0, 1, 1, 1, 1}));
}

Result<std::unique_ptr<LoadedModel>> public_model(Device& trace) {
  MF_ASSIGN_OR_RETURN(const auto found, find_public_model("qwen3.6-35b-a3b"));
  return assume_model(found.config_json, trace, {});
}

// Layers of each device; none where something fails.
std::vector<size_t> counts_of_a_public_model(const LayerSplitRequest& request) {
  const std::unique_ptr<Device> trace = make_trace_device();
  const auto model = public_model(*trace);
  EXPECT_TRUE(model.ok());
  if (!model.ok()) return {};
  const auto devices = split_layers(**model, request);
  EXPECT_TRUE(devices.ok()) << devices.error().to_string();
  return devices.ok() ? counts(*devices, request.free_bytes.size()) : std::vector<size_t>();
}

TEST(LayerSplit, EqualGpusGetTheSameLayersOfAModelWithALargeHead) {
  const std::vector<size_t> count = counts_of_a_public_model(
      {.free_bytes = {80 * kGiB, 80 * kGiB}, .context_length = 4096, .step_tokens = 4096});
  EXPECT_EQ(count, (std::vector<size_t>{20, 20}));
}

TEST(LayerSplit, DevicesWithoutMemoryOfTheirOwnGetTheSame) {
  EXPECT_EQ(split(3, {{}, {}, {}}), (Devices{0, 1, 2}));
}

TEST(LayerSplit, FewerLayersThanDevicesLeaveSomeWithout) {
  EXPECT_EQ(split(1, std::vector<CardMemory>(4, CardMemory{900})).size(), 1u);
}

TEST(LayerSplit, APassOverALayerIsWhereItsWeightsAre) {
  ModelSpec spec = layers(6);
  spec.layers[4].pass_over = 0;
  spec.layers[5].pass_over = 3;
  std::vector<SplitLayer> sizes(6, SplitLayer{.dense = 10});
  sizes[4].dense = sizes[5].dense = 5;
  EXPECT_EQ(split_layers(spec, sizes, std::vector<CardMemory>{{100}, {100}}),
            (Devices{0, 0, 1, 1, 0, 1}));
}

TEST(LayerSplit, OfAModelCountsWhatEachDeviceHasOfItBeside) {
  const std::vector<size_t> count = counts_of_a_public_model(
      {.free_bytes = {8 * kGiB, 3 * kGiB}, .context_length = 4096, .step_tokens = 512});
  ASSERT_EQ(count.size(), 2u);
  EXPECT_EQ(count[0] + count[1], 40u);
  EXPECT_GT(count[1], 5u);
  EXPECT_LT(count[1], 14u);
}

bool gains(const LayerSplitRequest& request) {
  const std::unique_ptr<Device> trace = make_trace_device();
  const auto model = public_model(*trace);
  EXPECT_TRUE(model.ok());
  if (!model.ok()) return false;
  const auto result = gains_from_all(**model, request);
  EXPECT_TRUE(result.ok()) << result.error().to_string();
  return result.ok() && *result;
}

// Text takes as long as on one, and chunks of a prompt follow each other.
TEST(LayerSplit, EqualGpusGainPrompts) {
  EXPECT_TRUE(gains({.free_bytes = {80 * kGiB, 80 * kGiB},
                     .bytes_per_second = {4e12, 4e12},
                     .context_length = 4096,
                     .step_tokens = 4096}));
}

TEST(LayerSplit, ASecondGpuHoldsExpertsThatTheFirstDoesNot) {
  EXPECT_TRUE(gains({.free_bytes = {12 * kGiB, 12 * kGiB},
                     .bytes_per_second = {1e12, 0.9e12},
                     .context_length = 4096,
                     .step_tokens = 512}));
}

TEST(LayerSplit, ASlowGpuBesideOneThatHoldsTheModelGainsNothing) {
  EXPECT_FALSE(gains({.free_bytes = {80 * kGiB, 80 * kGiB},
                      .bytes_per_second = {4e12, 0.2e12},
                      .context_length = 4096,
                      .step_tokens = 4096}));
}

}  // namespace
}  // namespace moeflux
