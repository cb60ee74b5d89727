// The cost of a step on tiers against cases computed by hand.
#include "plan/tier_cost.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace moeflux {
namespace {

// Rates of which the model takes round shares: 770, 45 (fetched), 47.5 (ring), 30 (in place) GB/s.
constexpr TierSpeeds kTierSpeeds{.device_bytes_per_second = 1000e9,
                                 .bus_bytes_per_second = 50e9,
                                 .memory_bytes_per_second = 100e9,
                                 .drive_bytes_per_second = 2e9,
                                 .multiply_adds_per_second = 10e12};
// A token: 0.77 GB of dense weights, 0.9 GB of experts, ten layers.
constexpr StepWork kTierToken{.dense_bytes = 0.77e9, .expert_bytes = 0.9e9, .layers = 10.0};

TEST(TierCost, WithAllOnTheDeviceItsMemoryAndLaunchesCount) {
  const TierCost cost = cost_on_tiers({.work = kTierToken}, kTierSpeeds);
  EXPECT_NEAR(cost.device_seconds, 1.67e9 / 770e9, 1e-12);
  EXPECT_NEAR(cost.launch_seconds, 270e-6, 1e-12);
  EXPECT_EQ(cost.bus_seconds, 0.0);
  EXPECT_NEAR(cost.total_seconds, 1.67e9 / 770e9 + 270e-6, 1e-12);
  EXPECT_EQ(cost.limit, TierLimit::kDevice);
  EXPECT_EQ(cost_on_tiers({.work = {.dense_bytes = 1e6, .layers = 10.0}}, kTierSpeeds).limit,
            TierLimit::kLaunches);
}

TEST(TierCost, WeightsThatAreUnpackedSlowlyAreReadSlowly) {
  StepWork work = kTierToken;
  work.device_share = 0.5;
  EXPECT_NEAR(cost_on_tiers({.work = work}, kTierSpeeds).device_seconds, 2 * 1.67e9 / 770e9, 1e-12);
}

TEST(TierCost, WeightsThatAreUnpackedSlowlyAreMultipliedSlowly) {
  StepWork work = kTierToken;
  work.multiply_adds = 1e12;
  work.arithmetic_share = 0.8;
  EXPECT_NEAR(cost_on_tiers({.work = work}, kTierSpeeds).compute_seconds, 0.125, 1e-12);
}

TEST(TierCost, WhatATokenFetchesComesBeforeItsProducts) {
  const TierCost cost =
      cost_on_tiers({.work = kTierToken, .found = {.near = 0.5, .far = 0.5}}, kTierSpeeds);
  EXPECT_NEAR(cost.bus_bytes, 0.45e9, 1.0);
  EXPECT_NEAR(cost.bus_seconds, 0.01, 1e-12);
  EXPECT_NEAR(cost.total_seconds, 0.01 + 1.67e9 / 770e9 + 270e-6, 1e-12);
  EXPECT_EQ(cost.limit, TierLimit::kBus);
}

TEST(TierCost, ExpertsThatMoveShareTheBus) {
  const TierCost cost = cost_on_tiers(
      {.work = kTierToken, .found = {.near = 0.5, .far = 0.5}, .experts_move = true}, kTierSpeeds);
  EXPECT_NEAR(cost.bus_bytes, 0.45e9 * 17.0 / 16.0, 1.0);
}

TEST(TierCost, TheDriveDecidesWhereExpertsAreInNoMemory) {
  const TierCost cost = cost_on_tiers({.work = kTierToken,
                                       .found = {.near = 0.4, .far = 0.4, .drive = 0.2},
                                       .far_reads = FarReads::kInPlace},
                                      kTierSpeeds);
  EXPECT_NEAR(cost.drive_seconds, 0.09, 1e-12);
  EXPECT_NEAR(cost.bus_seconds, 0.54 / 30, 1e-12);
  EXPECT_NEAR(cost.memory_seconds, 0.0072, 1e-12);  // 0.54 GB read, 0.18 of them written before
  EXPECT_NEAR(cost.launch_seconds, 420e-6, 1e-12);  // the host has a part in each layer
  EXPECT_NEAR(cost.total_seconds, 0.09 + 1.67e9 / 770e9 + 420e-6, 1e-12);
  EXPECT_EQ(cost.limit, TierLimit::kDrive);
}

TEST(TierCost, ASlowHostMemoryHoldsTheBusUp) {
  TierSpeeds slow = kTierSpeeds;
  slow.memory_bytes_per_second = 10e9;
  const TierCost cost =
      cost_on_tiers({.work = kTierToken, .found = {.near = 0.0, .far = 1.0}}, slow);
  EXPECT_EQ(cost.limit, TierLimit::kMemory);
  EXPECT_GT(cost.total_seconds, 0.09);
}

// A processor reads half of what is far while the rest is copied; the device waits for both.
TEST(TierCost, WhatAProcessorComputesDoesNotCrossTheBus) {
  const TierCost cost = cost_on_tiers({.work = kTierToken,
                                       .found = {.near = 0.5, .far = 0.5},
                                       .far_reads = FarReads::kRing,
                                       .helped = 0.5},
                                      kTierSpeeds);
  EXPECT_NEAR(cost.bus_bytes, 0.225e9, 1.0);
  TierSpeeds few_cores = kTierSpeeds;
  few_cores.helper_bytes_per_second = 10e9;
  EXPECT_NEAR(cost_on_tiers({.work = kTierToken,
                             .found = {.near = 0.5, .far = 0.5},
                             .far_reads = FarReads::kRing,
                             .helped = 0.5},
                            few_cores)
                  .memory_seconds,
              0.0225, 1e-12);
  EXPECT_NEAR(cost.memory_seconds, 0.45e9 / kTierSpeeds.memory_bytes_per_second, 1e-12);
  EXPECT_NEAR(cost.total_seconds,
              cost.launch_seconds + (1.67e9 - 0.225e9) / 770e9 +
                  std::max(cost.bus_seconds, cost.memory_seconds),
              1e-12);
}

// 19 GB of experts in 0.2 s of the bus where half of them are near; 1.5e12 multiply-adds, a third
// of them the experts'.
TEST(TierCost, APromptsExpertsComeBesideTheirProducts) {
  const TierStep step{.work = {.dense_bytes = 0.77e9,
                               .expert_bytes = 19e9,
                               .multiply_adds = 1.5e12,
                               .expert_multiply_adds = 0.5e12},
                      .found = {.near = 0.5, .far = 0.5},
                      .far_reads = FarReads::kRing};
  const TierCost cost = cost_on_tiers(step, kTierSpeeds);
  EXPECT_NEAR(cost.bus_seconds, 0.2, 1e-12);
  EXPECT_NEAR(cost.total_seconds, 0.1 + 0.2, 1e-12);
  TierStep long_prompt = step;
  long_prompt.work.multiply_adds = 15e12;
  long_prompt.work.expert_multiply_adds = 5e12;
  EXPECT_NEAR(cost_on_tiers(long_prompt, kTierSpeeds).total_seconds, 1.0 + 0.5, 1e-12);
  EXPECT_EQ(cost_on_tiers(long_prompt, kTierSpeeds).limit, TierLimit::kCompute);
  long_prompt.tiles_filled = 0.5;
  EXPECT_NEAR(cost_on_tiers(long_prompt, kTierSpeeds).total_seconds, 1.0 + 1.0, 1e-12);
}

}  // namespace
}  // namespace moeflux
