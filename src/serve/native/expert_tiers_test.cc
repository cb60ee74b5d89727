#include "serve/native/expert_tiers.h"

#include <gtest/gtest.h>

namespace moeflux::serve {
namespace {

constexpr ExpertPlace kDrive = ExpertPlace::kDrive;
constexpr ExpertPlace kHost = ExpertPlace::kHost;
constexpr ExpertPlace kDevice = ExpertPlace::kDevice;

// A dense layer and one of 10 experts.
ExpertTable table() {
  ExpertTable table;
  table.layers.resize(2);
  table.layers[1].num_experts = 10;
  return table;
}

std::shared_ptr<ExpertMap> map(uint64_t number) {
  ExpertMap map{.num_layers = 2, .num_experts = 10, .number = number};
  map.places.resize(20, kDrive);
  map.uses.resize(20);
  return std::make_shared<ExpertMap>(std::move(map));
}

TEST(ExpertTiers, ComeWholeAndThenAsChanges) {
  ExpertTiers tiers(/*by_id=*/true);
  const auto first = map(1);
  first->places[10] = first->places[19] = kHost;
  first->places[11] = kDevice;
  Json frame = Json::object();
  tiers.add(frame, "m", table(), first);
  EXPECT_EQ(frame["tiers"], Json::parse(R"({"model":"m","gpu":1,"memory":2,"drive":7})"));
  EXPECT_EQ(frame["residency"], Json::parse(R"({"model":"m","experts":10,"whole":true,
      "layers":[{"layer":1,"gpu":"AgA=","memory":"AQI="}]})"));
  EXPECT_FALSE(frame.contains("used"));

  const auto second = std::make_shared<ExpertMap>(*first);
  second->number = 2;
  second->places[12] = kDevice;
  second->uses[13] = 4;
  frame = Json::object();
  tiers.add(frame, "m", table(), second);
  EXPECT_EQ(frame["residency"]["whole"], false);
  EXPECT_EQ(frame["residency"]["changed"], Json::parse("[[1,2,2]]"));
  EXPECT_EQ(frame["used"], Json::parse(R"([[1,"CAA="]])"));

  frame = Json::object();
  tiers.add(frame, "m", table(), second);
  EXPECT_FALSE(frame.contains("residency"));
  EXPECT_EQ(frame["tiers"]["gpu"], 2);
}

TEST(ExpertTiers, AnotherModelComesWhole) {
  ExpertTiers tiers(/*by_id=*/true);
  Json frame;
  tiers.add(frame, "m", table(), map(5));
  frame = Json::object();
  tiers.add(frame, "n", table(), map(6));
  EXPECT_EQ(frame["residency"]["whole"], true);
  frame = Json::object();
  tiers.add(frame, "n", table(), map(1));
  EXPECT_EQ(frame["residency"]["whole"], true);
  frame = Json::object();
  tiers.add_none(frame);
  EXPECT_TRUE(frame["tiers"].is_null());
  tiers.add(frame, "n", table(), map(2));
  EXPECT_EQ(frame["residency"]["whole"], true);
}

TEST(ExpertTiers, ManyChangesComeWhole) {
  ExpertTiers tiers(/*by_id=*/true);
  Json frame;
  tiers.add(frame, "m", table(), map(1));
  const auto full = map(2);
  std::fill_n(full->places.begin() + 10, 10, kHost);
  frame = Json::object();
  tiers.add(frame, "m", table(), full);
  EXPECT_EQ(frame["residency"]["whole"], true);
}

TEST(ExpertTiers, OthersSeeSums) {
  ExpertTiers tiers(/*by_id=*/false);
  Json frame = Json::object();
  const auto one = map(1);
  one->places[10] = kHost;
  tiers.add(frame, "m", table(), one);
  EXPECT_EQ(frame["tiers"]["memory"], 1);
  EXPECT_FALSE(frame.contains("residency"));
  EXPECT_FALSE(frame.contains("used"));
}

// A map of 60 layers of 512 experts, in random places.
TEST(ExpertTiers, AWholeMapIsSmall) {
  ExpertTable wide;
  wide.layers.resize(60);
  for (ExpertLayer& layer : wide.layers) layer.num_experts = 512;
  ExpertMap random{.num_layers = 60, .num_experts = 512, .number = 1};
  for (uint32_t i = 0; i < 60 * 512; ++i) {
    random.places.push_back(static_cast<ExpertPlace>(i * 2654435761u >> 16 & 1));
  }
  ExpertTiers tiers(/*by_id=*/true);
  Json frame = Json::object();
  tiers.add(frame, "m", wide, std::make_shared<ExpertMap>(std::move(random)));
  EXPECT_LT(frame.dump().size(), 10'000u);
}

}  // namespace
}  // namespace moeflux::serve
