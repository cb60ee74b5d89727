#include "experts/tiers/usage_profile.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using testing::expect_error;

ExpertKey profile_key(int32_t expert) { return {LayerId{1}, ExpertId{expert}}; }

ExpertCache make_cache() {
  return {nullptr, {.num_slots = 2, .shape = {.num_layers = 2, .num_experts = 4}}};
}

void fill_cache(ExpertCache& cache, int32_t expert) {
  const ExpertPin pin = cache.reserve(profile_key(expert), Purpose::kDecode);
  ASSERT_TRUE(pin);
  cache.set_ready(pin.slot());
}

TEST(UsageProfile, WhatWasWrittenIsReadAndRanksAColdCache) {
  ExpertCache used = make_cache();
  for (int i = 0; i < 10; ++i) {
    used.begin_visit(LayerId{1});
    used.note_use(profile_key(3));
    if (i % 2 == 0) used.note_use(profile_key(0));
  }
  UsageProfile profile{.model = "m"};
  profile.add(used);
  profile.add(used);
  EXPECT_EQ(profile.tokens, 20u);
  const testing::TempFolder folder;
  ASSERT_TRUE(profile.write(folder / "profile.json").ok());
  const auto read = UsageProfile::read(folder / "profile.json");
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  EXPECT_EQ(read->model, "m");
  EXPECT_EQ(read->layers, (std::vector<std::vector<uint64_t>>{{0, 0, 0, 0}, {10, 0, 0, 20}}));

  ExpertCache cold = make_cache();
  ASSERT_TRUE(read->check(cold.shape()).ok());
  read->seed(cold);
  for (const int32_t expert : {3, 0, 1}) fill_cache(cold, expert);  // 3 and 0 are older than 1
  EXPECT_TRUE(cold.find(profile_key(3)).has_value());
  EXPECT_FALSE(cold.find(profile_key(0)).has_value());
}

// 30 tokens of a profile: expert 3 was used by all of them, expert 0 by half.
TEST(UsageProfile, ScoresNearExpertsAsThirtyTokensWould) {
  const UsageProfile profile{.model = "m", .tokens = 1000, .layers = {{}, {500, 0, 0, 1000}}};
  NearPlacement placement({.num_layers = 2, .num_experts = 4}, 1, {.decay = 1.0, .margin = 1.0});
  profile.seed(placement);
  std::vector<ExpertKey> ranked = {profile_key(0), profile_key(1), profile_key(2), profile_key(3)};
  placement.rank(ranked);
  EXPECT_EQ(ranked, (std::vector<ExpertKey>{profile_key(3), profile_key(0), profile_key(1),
                                            profile_key(2)}));
  const auto slot = placement.fill(ranked.front());
  ASSERT_TRUE(slot.has_value());
  placement.arrived(*slot);
  // 15 of its 30 uses are known of expert 0; it comes with the sixteenth more.
  for (int i = 0; i < 15; ++i) {
    placement.begin_token();
    placement.note_use(LayerId{1}, std::vector<int32_t>{0});
    EXPECT_TRUE(placement.choose_moves(1).empty()) << i;
  }
  placement.begin_token();
  placement.note_use(LayerId{1}, std::vector<int32_t>{0});
  EXPECT_EQ(placement.choose_moves(1).size(), 1u);
}

TEST(UsageProfile, WhatAPlacementCountsIsAdded) {
  NearPlacement placement({.num_layers = 2, .num_experts = 4}, 1, {});
  for (int i = 0; i < 3; ++i) {
    placement.begin_token();
    placement.note_use(LayerId{1}, std::vector<int32_t>{2, i});
  }
  placement.note_prompt(LayerId{0}, std::vector<int32_t>{1}, 1);
  UsageProfile profile{.model = "m", .tokens = 7, .layers = {{}, {5}}};
  profile.add(placement);
  EXPECT_EQ(profile.tokens, 10u);
  EXPECT_EQ(profile.layers, (std::vector<std::vector<uint64_t>>{{0, 0, 0, 0}, {6, 1, 4, 0}}));
}

TEST(UsageProfile, OfAnotherModelIsRefused) {
  ExpertCache cache = make_cache();
  const UsageProfile narrow{.model = "other", .tokens = 1, .layers = {{1}}};
  expect_error(narrow.check(cache.shape()), ErrorCode::kInvalidArgument,
               {"other", "1 layers", "2 of 4"});
}

TEST(UsageProfile, RefusesWhatItDidNotWrite) {
  const auto refuse = [](std::string_view text, std::initializer_list<std::string_view> says) {
    expect_error(UsageProfile::parse(text), ErrorCode::kCorruption, says);
  };
  refuse("", {"usage profile"});
  refuse("[]", {"an object"});
  refuse("{}", {"format"});
  refuse(R"({"format":"x"})", {"\"x\"", "v1"});
  const std::string begin = R"({"format":"moeflux usage profile v1","model":"m","tokens":1,)";
  refuse(begin + R"("layers":3})", {"layers", "3"});
  refuse(begin + R"("layers":[[1],2]})", {"layer 1"});
  refuse(begin + R"("layers":[[-1]]})", {"layer 0", "-1"});
  EXPECT_FALSE(UsageProfile::parse(begin + R"("layers":[["a"]]})").ok());
}

}  // namespace
}  // namespace moeflux
