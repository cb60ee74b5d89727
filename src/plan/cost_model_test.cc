// The cost model against cases computed by hand.
#include "plan/cost_model.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

// 1 GB of dense weights, 0.5 GB of experts and 3e9 multiply-adds a token; a drive of 2 GB/s, memory
// of 32 GB/s, arithmetic of 300e9 a second.
constexpr StepWork kToken{.dense_bytes = 1e9, .expert_bytes = 0.5e9, .multiply_adds = 3e9};
constexpr MachineSpeeds kLaptop{.drive_bytes_per_second = 2e9,
                                .memory_bytes_per_second = 32e9,
                                .multiply_adds_per_second = 300e9};

TEST(CostModel, ASlowDriveLimitsAndDenseWeightsComeOnTop) {
  // 0.4 GB missed: 0.2 s of the drive; memory 1 + 0.5 + 0.4 GB: 59.4 ms, 31.25 of them dense.
  const StepCost cost = cost_of(kToken, 0.2, kLaptop);
  EXPECT_DOUBLE_EQ(cost.drive_seconds, 0.2);
  EXPECT_DOUBLE_EQ(cost.memory_seconds, 1.9 / 32);
  EXPECT_DOUBLE_EQ(cost.compute_seconds, 0.01);
  EXPECT_DOUBLE_EQ(cost.bound_seconds, 0.2);
  EXPECT_DOUBLE_EQ(cost.in_layer_seconds, 1.0 / 32 + 0.2);
  EXPECT_EQ(cost.limit, CostLimit::kDrive);
}

TEST(CostModel, WithEverythingCachedMemoryLimits) {
  const StepCost cost = cost_of(kToken, 1.0, kLaptop);
  EXPECT_EQ(cost.drive_seconds, 0.0);
  EXPECT_DOUBLE_EQ(cost.memory_seconds, 1.5 / 32);
  EXPECT_DOUBLE_EQ(cost.in_layer_seconds, 1.5 / 32);
  EXPECT_EQ(cost.limit, CostLimit::kMemory);
}

TEST(CostModel, ReadsHideBehindTheExpertsOfTheirLayerOnly) {
  // A drive of 40 GB/s: 10 ms of reads hide behind 28.1 ms of experts from memory.
  MachineSpeeds fast = kLaptop;
  fast.drive_bytes_per_second = 40e9;
  const StepCost cost = cost_of(kToken, 0.2, fast);
  EXPECT_DOUBLE_EQ(cost.drive_seconds, 0.01);
  EXPECT_DOUBLE_EQ(cost.in_layer_seconds, 1.9 / 32);
  EXPECT_EQ(cost.limit, CostLimit::kMemory);
}

TEST(CostModel, SlowArithmeticLimitsAPrompt) {
  // 512 tokens: 1.5e12 multiply-adds in 5 s, 18 GB in 4 s beside it, none of it cached.
  const StepWork prompt{.dense_bytes = 1e9, .expert_bytes = 18e9, .multiply_adds = 1.5e12};
  MachineSpeeds speeds = kLaptop;
  speeds.drive_bytes_per_second = 4.5e9;
  const StepCost cost = cost_of(prompt, 0.0, speeds);
  EXPECT_DOUBLE_EQ(cost.drive_seconds, 4.0);
  EXPECT_DOUBLE_EQ(cost.memory_seconds, 37.0 / 32);
  EXPECT_DOUBLE_EQ(cost.compute_seconds, 5.0);
  EXPECT_DOUBLE_EQ(cost.bound_seconds, 5.0);
  EXPECT_EQ(cost.limit, CostLimit::kCompute);
}

TEST(CostModel, AStepWithoutExpertsNeedsNoDrive) {
  const StepCost cost = cost_of({.dense_bytes = 32e9}, 0.0, kLaptop);
  EXPECT_DOUBLE_EQ(cost.in_layer_seconds, 1.0);
  EXPECT_EQ(cost.limit, CostLimit::kMemory);
}

TEST(DistinctExperts, GrowToAllOfThem) {
  EXPECT_DOUBLE_EQ(distinct_experts(256, 8, 1), 8.0);
  EXPECT_DOUBLE_EQ(distinct_experts(256, 8, 2), 15.75);  // 8 + 8 x 31/32
  EXPECT_NEAR(distinct_experts(256, 8, 64), 222.4, 0.05);
  EXPECT_NEAR(distinct_experts(256, 8, 512), 256.0, 1e-3);
  EXPECT_EQ(distinct_experts(4, 4, 1), 4.0);
  EXPECT_EQ(distinct_experts(0, 0, 100), 0.0);
}

TEST(NaturalHitRates, PassThroughWhatWasPublished) {
  EXPECT_DOUBLE_EQ(natural_hit_rates(0.125).low, 0.51);
  EXPECT_DOUBLE_EQ(natural_hit_rates(0.125).high, 0.67);
  EXPECT_DOUBLE_EQ(natural_hit_rates(0.1875).high, 0.76);  // half-way to 0.85 at a quarter
  EXPECT_DOUBLE_EQ(natural_hit_rates(0.0).high, 0.0);
  EXPECT_DOUBLE_EQ(natural_hit_rates(1.0).low, 1.0);
}

TEST(NaturalHitRates, RiseWithTheCacheAndNeverCross) {
  HitRange before;
  for (int percent = 1; percent <= 100; ++percent) {
    const HitRange range = natural_hit_rates(percent / 100.0);
    EXPECT_GE(range.low, before.low) << percent;
    EXPECT_GE(range.high, before.high) << percent;
    EXPECT_LE(range.low, range.high) << percent;
    before = range;
  }
}

}  // namespace
}  // namespace moeflux
