#include "plan/long_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "backend/trace/trace_device.h"
#include "base/units.h"
#include "model/family/public_models.h"
#include "plan/dry_run.h"
#include "plan/model_sizes.h"

namespace moeflux {
namespace {

constexpr int64_t kContext = 4096;

// 40 layers of 256 experts, of which a token takes 8.
class LongSteps : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto found = find_public_model("qwen3.6-35b-a3b");
    ASSERT_TRUE(found.ok());
    auto counted = assume_model(found->config_json, *device_, {});
    ASSERT_TRUE(counted.ok());
    model_ = std::move(counted).value();
  }

  MemoryPlan memory(uint64_t available, int64_t tokens,
                    std::optional<uint64_t> expert_cache = {}) const {
    const auto needs = dry_run(*model_->model, tokens, logits_rows_max(model_->spec(), tokens));
    EXPECT_TRUE(needs.ok());
    return plan_memory(*model_, {.available_bytes = available,
                                 .context_length = kContext,
                                 .step_tokens_max = tokens,
                                 .scratch_bytes = needs->scratch_bytes +
                                                  step_buffers_bytes(model_->spec(), tokens),
                                 .expert_cache_bytes = expert_cache});
  }
  int64_t on_host(uint64_t available, std::optional<uint64_t> expert_cache = {}) const {
    const MemoryPlan plan = memory(available, 512, expert_cache);
    const auto tokens = lengthen_step(*model_, {.step_tokens = 512,
                                                .tokens_max = int64_t{1} << 20,
                                                .context_length = kContext,
                                                .memory = plan,
                                                .experts = {.expert_cache_bytes = expert_cache}});
    EXPECT_TRUE(tokens.ok());
    return tokens.ok() ? *tokens : 0;
  }
  /// With so much left of the memory of a device, where a step of 2048 has its own.
  int64_t on_device(uint64_t left, const ExpertPlanRequest& experts, int64_t tokens_max,
                    uint64_t available = 64 * kGiB) const {
    const MemoryPlan plan = memory(available, 2048);
    const std::vector<DeviceMemory> devices = {{.free_bytes = left, .copies_beside = true}};
    const auto tokens = lengthen_step(*model_, {.step_tokens = 2048,
                                                .tokens_max = tokens_max,
                                                .context_length = kContext,
                                                .memory = plan,
                                                .devices = devices,
                                                .experts = experts});
    EXPECT_TRUE(tokens.ok());
    return tokens.ok() ? *tokens : 0;
  }

  std::unique_ptr<Device> device_ = make_trace_device();
  std::unique_ptr<LoadedModel> model_;
};

TEST_F(LongSteps, BytesOfATokenFallAsStepsGrow) {
  const auto bytes = [&](int64_t tokens) {
    return expected_expert_bytes(*model_, tokens) / static_cast<double>(tokens);
  };
  for (int64_t tokens = 512; tokens < 16384; tokens *= 2) {
    EXPECT_NEAR(bytes(2 * tokens) / bytes(tokens), 0.5, 1e-3) << tokens;
  }
}

TEST_F(LongSteps, AHostThatHoldsAllExpertsHasTheStepsOfItsDevice) {
  EXPECT_FALSE(memory(64 * kGiB, 512).streams());
  EXPECT_EQ(on_host(64 * kGiB), 512);
}

TEST_F(LongSteps, ExpertsKeepMostOfTheirMemory) {
  int64_t longest = 512;
  for (uint64_t gib = 3; gib <= 18; ++gib) {
    const int64_t tokens = on_host(gib * kGiB);
    longest = std::max(longest, tokens);
    const uint64_t before = memory(gib * kGiB, 512).expert_cache_bytes;
    EXPECT_GE(memory(gib * kGiB, tokens).expert_cache_bytes, before - before / 16) << gib;
  }
  EXPECT_EQ(longest, 4 * 512);
  EXPECT_EQ(on_host(2 * kGiB), 512);  // too little for the weights of all tokens
}

TEST_F(LongSteps, StepsThatBringLittleAreNoLonger) {
  EXPECT_EQ(on_host(10 * kGiB), 4 * 512);
  EXPECT_LE(on_host(17 * kGiB), 4 * 512);
  EXPECT_LT(on_host(19 * kGiB), on_host(17 * kGiB));
}

TEST_F(LongSteps, ACacheThatWasAskedForIsNotShortened) {
  EXPECT_EQ(on_host(16 * kGiB, 1 * kGiB), 4 * 512);
  const MemoryPlan all = memory(16 * kGiB, 512);
  EXPECT_EQ(on_host(16 * kGiB, all.expert_cache_bytes), 512);
}

TEST_F(LongSteps, ADeviceThatHoldsAllExpertsHasItsOwn) {
  EXPECT_EQ(on_device(100 * kGiB, {}, int64_t{1} << 20), 2048);
}

TEST_F(LongSteps, MemoryBesideNearExpertsBoundsAStep) {
  constexpr int64_t kMany = int64_t{1} << 20;
  EXPECT_EQ(on_device(100 * kGiB, {.near_cache_bytes = 4 * kGiB}, kMany), 8192);
  EXPECT_EQ(on_device(100 * kGiB, {.near_cache_bytes = 14 * kGiB}, kMany), 2048);  // little is far
  EXPECT_EQ(on_device(4 * kGiB, {.near_cache_bytes = 4 * kGiB}, kMany), 2048);
  EXPECT_EQ(on_device(30 * kGiB, {.near_cache_bytes = 4 * kGiB}, kMany), 4096);
  EXPECT_EQ(on_device(8 * kGiB, {}, kMany), 2048);
}

// Products then read experts of the host again for every tile of tokens.
TEST_F(LongSteps, ExpertsThatAreReadInPlaceHaveTheStepsOfTheirDevice) {
  constexpr int64_t kMany = int64_t{1} << 20;
  EXPECT_EQ(on_device(100 * kGiB, {.near_cache_bytes = 4 * kGiB, .ring_bytes = 0}, kMany), 2048);
  EXPECT_EQ(on_device(100 * kGiB, {.expert_cache_bytes = 4 * kGiB}, kMany), 2048);
}

TEST_F(LongSteps, AHostThatJustHoldsAllExpertsGoesOnHoldingThem) {
  const MemoryPlan all = memory(64 * kGiB, 2048);
  const uint64_t least = all.taken_bytes() + all.experts_bytes;
  EXPECT_FALSE(memory(least, 2048).streams());
  EXPECT_EQ(on_device(100 * kGiB, {.near_cache_bytes = 4 * kGiB}, int64_t{1} << 20, least), 2048);
}

TEST_F(LongSteps, NoStepIsLongerThanTextsCanBe) {
  EXPECT_EQ(on_device(100 * kGiB, {.near_cache_bytes = 4 * kGiB}, 6000), 6000);
  EXPECT_EQ(on_device(100 * kGiB, {.near_cache_bytes = 4 * kGiB}, 100), 2048);
}

}  // namespace
}  // namespace moeflux
