// Profiles of experts' use, kept between engines.
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/tiny_engine_test_util.h"
#include "tests/support/eval_last.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;

class ExpertProfileTest : public TinyEngineTest {
 protected:
  EngineOptions options() const { return {.expert_profile = path_}; }
  static void decode(Engine& engine, size_t tokens) {
    const auto sequence = start(engine);
    for (const TokenId& token : some_tokens(tokens)) {
      EXPECT_TRUE(eval_last(engine, *sequence, std::span(&token, 1), StepPhase::kDecode).ok());
    }
  }

  std::string path_ = folder_ / "uses.json";
};

TEST_F(ExpertProfileTest, CountsAddUpOverEngines) {
  for (const uint64_t tokens : {7u, 14u}) {
    const auto engine = open(options());
    decode(*engine, 7);
    ASSERT_TRUE(engine->save_expert_profile().ok());
    const auto profile = UsageProfile::read(path_);
    ASSERT_TRUE(profile.ok()) << profile.error().to_string();
    EXPECT_EQ(profile->tokens, tokens);
    uint64_t uses = 0;
    for (const auto& layer : profile->layers) {
      for (const uint64_t count : layer) uses += count;
    }
    EXPECT_EQ(uses, tokens * 2 * 2);  // of two experts in each of two layers
  }
}

TEST_F(ExpertProfileTest, SavingTwiceCountsOnce) {
  const auto engine = open(options());
  decode(*engine, 5);
  ASSERT_TRUE(engine->save_expert_profile().ok());
  ASSERT_TRUE(engine->save_expert_profile().ok());
  EXPECT_EQ(UsageProfile::read(path_)->tokens, 5u);
}

TEST_F(ExpertProfileTest, ChangesNoBit) {
  const auto plain = open({.expert_cache_bytes = 0});
  const std::vector<float> expected = all_logits(*plain, some_tokens(30));
  const auto first = open(options());
  decode(*first, 20);
  ASSERT_TRUE(first->save_expert_profile().ok());
  EngineOptions small = options();
  small.expert_cache_bytes = 3 * plain->memory_plan().expert_slot_bytes;
  EXPECT_EQ(all_logits(*open(small), some_tokens(30)), expected);
}

TEST_F(ExpertProfileTest, WithoutUseItStaysAsItWas) {
  const UsageProfile profile{
      .model = open({})->spec().model_type, .tokens = 1000, .layers = {{0, 0, 0, 9}, {0, 8, 0, 9}}};
  ASSERT_TRUE(profile.write(path_).ok());
  ASSERT_TRUE(open(options())->save_expert_profile().ok());
  EXPECT_EQ(UsageProfile::read(path_)->layers, profile.layers);
  EXPECT_EQ(UsageProfile::read(path_)->tokens, 1000u);
}

TEST_F(ExpertProfileTest, OthersFilesAreRefusedAndKept) {
  const std::string type = open({})->spec().model_type;
  UsageProfile profile{.model = "another", .tokens = 1, .layers = {{1, 0, 0, 0}, {1, 0, 0, 0}}};
  ASSERT_TRUE(profile.write(path_).ok());
  expect_error(Engine::open(folder_.path(), *device_, options()), ErrorCode::kInvalidArgument,
               {"uses.json", "another", type});
  profile.model = type;
  profile.layers.pop_back();
  ASSERT_TRUE(profile.write(path_).ok());
  expect_error(Engine::open(folder_.path(), *device_, options()), ErrorCode::kInvalidArgument,
               {"uses.json", "1 layers", "has 2"});
  ASSERT_TRUE(write_text_file(path_, "{\"format\": \"something else\"}").ok());
  expect_error(Engine::open(folder_.path(), *device_, options()), ErrorCode::kCorruption,
               {"uses.json", "something else"});
  EXPECT_EQ(*read_text_file(path_, 100), "{\"format\": \"something else\"}");
}

}  // namespace
}  // namespace moeflux
