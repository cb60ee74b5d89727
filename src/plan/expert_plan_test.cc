#include "plan/expert_plan.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "engine/tiny_engine_test_util.h"

namespace moeflux {
namespace {

// Two layers of four experts.
class ExpertPlanTest : public TinyEngineTest {
 protected:
  ExpertPlanTest() {
    auto loaded = load_model(folder_.path(), *device_, WeightLoading::kRead);
    EXPECT_TRUE(loaded.ok());
    model_ = std::move(loaded).value();
    slot_ = model_->experts.slot_bytes_max();
  }

  /// On a host whose cache has room for so many experts.
  ExpertPlan plan(uint64_t cached, std::optional<DeviceMemory> device,
                  const ExpertPlanRequest& request = {}) const {
    MemoryPlan memory{.experts_bytes = 8 * slot_, .expert_slot_bytes = slot_};
    memory.expert_cache_bytes = request.expert_cache_bytes.value_or(cached * slot_);
    return plan_experts(model_->experts, memory, device, request);
  }
  DeviceMemory device(uint64_t slots) const {
    return {.free_bytes = kTaken + slots * slot_, .taken_bytes = kTaken, .copies_beside = true};
  }

  static constexpr uint64_t kTaken = 1000;

  std::unique_ptr<LoadedModel> model_;
  uint64_t slot_ = 0;
};

TEST(ExpertPlan, OfAModelWithoutExpertsPlacesNothing) {
  for (const std::optional<DeviceMemory>& device :
       {std::optional<DeviceMemory>(),
        std::optional(
            DeviceMemory{.free_bytes = 1000, .taken_bytes = 2000, .copies_beside = true})}) {
    const ExpertPlan plan = plan_experts(ExpertTable(), MemoryPlan(), device, {});
    EXPECT_EQ(plan.home, ExpertHome::kDevice);
    EXPECT_EQ(plan.near_bytes + plan.ring_bytes + plan.far_bytes, 0u);
  }
}

TEST_F(ExpertPlanTest, ADeviceThatHoldsAllHoldsAll) {
  EXPECT_EQ(plan(0, device(8)).home, ExpertHome::kDevice);
  EXPECT_EQ(plan(0, device(7)).home, ExpertHome::kDrive);
  DeviceMemory plain = device(8);
  plain.copies_beside = false;
  EXPECT_EQ(plan(0, plain).home, ExpertHome::kDevice);
}

TEST_F(ExpertPlanTest, WhoAsksForLessHasLess) {
  EXPECT_EQ(plan(8, device(8), {.near_cache_bytes = 4 * slot_}).home, ExpertHome::kHostAndDevice);
  EXPECT_EQ(plan(8, device(8), {.near_cache_bytes = 4 * slot_}).near_bytes, 4 * slot_);
  EXPECT_EQ(plan(8, device(8), {.expert_cache_bytes = 4 * slot_}).home, ExpertHome::kDrive);
}

TEST_F(ExpertPlanTest, AHostThatHoldsAllIsBehindTheDevice) {
  const ExpertPlan split = plan(8, device(5));
  EXPECT_EQ(split.home, ExpertHome::kHostAndDevice);
  EXPECT_EQ(split.near_bytes, 5 * slot_);
  EXPECT_EQ(split.ring_bytes, 0u);  // a quarter would not be two waves
  EXPECT_EQ(split.far_bytes, 8 * slot_);
  EXPECT_EQ(plan(8, device(5), {.ring_bytes = 3 * slot_}).ring_bytes, 3 * slot_);
  EXPECT_EQ(plan(8, device(5), {.token_bytes = 2 * slot_}).near_bytes, 3 * slot_);
}

TEST_F(ExpertPlanTest, WithoutRoomTheDriveIsBehindBoth) {
  const ExpertPlan split = plan(3, device(5));
  EXPECT_EQ(split.home, ExpertHome::kDrive);
  EXPECT_EQ(split.near_bytes, 5 * slot_);
  EXPECT_EQ(split.far_bytes, 3 * slot_);
  const ExpertPlan shared = plan(0, device(5), {.expert_cache_bytes = 6 * slot_});
  EXPECT_EQ(shared.near_bytes, 3 * slot_);
  EXPECT_EQ(shared.far_bytes, 3 * slot_);
}

/// The first device has layer 0, the second layer 1, each of four experts.
class SplitExpertPlanTest : public ExpertPlanTest {
 protected:
  SplitExpertPlanTest() {
    for (size_t i = 0; i < tables_.size(); ++i) {
      tables_[i].layers.resize(2);
      tables_[i].layers[i] = model_->experts.layers[i];
    }
  }
  ExpertPlan plan(uint64_t cached, uint64_t slots, uint64_t more_slots,
                  const ExpertPlanRequest& request = {}) const {
    std::vector<DeviceMemory> devices = {device(slots), device(more_slots)};
    for (size_t i = 0; i < 2; ++i) devices[i].experts = &tables_[i];
    MemoryPlan memory{.experts_bytes = 8 * slot_, .expert_slot_bytes = slot_};
    memory.expert_cache_bytes = request.expert_cache_bytes.value_or(cached * slot_);
    return plan_experts(model_->experts, memory, devices, request);
  }
  std::vector<ExpertTable> tables_ = std::vector<ExpertTable>(2);
};

TEST_F(SplitExpertPlanTest, DevicesThatHoldTheirLayersHoldAll) {
  EXPECT_EQ(plan(0, 4, 4).home, ExpertHome::kDevice);
  EXPECT_EQ(plan(0, 5, 3).home, ExpertHome::kDrive);  // room of one is no room of another
}

TEST_F(SplitExpertPlanTest, TheHostHasWhatDevicesDoNotHoldAllOf) {
  const ExpertPlan split = plan(4, 4, 2);
  EXPECT_EQ(split.home, ExpertHome::kHostAndDevice);
  EXPECT_EQ(split.far_bytes, 4 * slot_);
  ASSERT_EQ(split.parts.size(), 2u);
  EXPECT_TRUE(split.parts[0].holds_all);
  EXPECT_FALSE(split.parts[1].holds_all);
  EXPECT_EQ(split.parts[1].near_bytes, 2 * slot_);
  EXPECT_EQ(split.near_bytes, 6 * slot_);
}

TEST_F(SplitExpertPlanTest, WhatIsAskedForIsSharedOutByWhatIsFree) {
  const ExpertPlan split = plan(8, 9, 3, {.near_cache_bytes = 4 * slot_});
  ASSERT_EQ(split.parts.size(), 2u);
  EXPECT_EQ(split.parts[0].near_bytes, 3 * slot_);
  EXPECT_EQ(split.parts[1].near_bytes, slot_);
  // Nobody gets more than all of its experts while another lacks some.
  EXPECT_EQ(plan(8, 9, 3, {.near_cache_bytes = 7 * slot_}).parts[1].near_bytes, 3 * slot_);
}

TEST_F(SplitExpertPlanTest, BeforeTheDriveEachHasItsShareToo) {
  const ExpertPlan split = plan(2, 3, 1);
  EXPECT_EQ(split.home, ExpertHome::kDrive);
  ASSERT_EQ(split.parts.size(), 2u);
  EXPECT_EQ(split.parts[0].near_bytes, 3 * slot_);
  EXPECT_EQ(split.parts[1].near_bytes, slot_);
  EXPECT_EQ(split.far_bytes, 2 * slot_);
}

TEST_F(ExpertPlanTest, ADeviceInTheHostsMemoryHasACacheAlone) {
  const ExpertPlan split = plan(3, std::nullopt);
  EXPECT_EQ(split.home, ExpertHome::kDrive);
  EXPECT_EQ(split.near_bytes, 0u);
  EXPECT_EQ(split.far_bytes, 3 * slot_);
  DeviceMemory plain = device(5);
  plain.copies_beside = false;
  EXPECT_EQ(plan(3, plain).near_bytes, 0u);
}

}  // namespace
}  // namespace moeflux
