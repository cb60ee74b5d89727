#include "plan/device_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "backend/trace/trace_device.h"
#include "model/family/public_models.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;

constexpr uint64_t kReserve = kMiB;  // of devices below eight

/// A table, a head and two weights of layers. Without room for parts and pages `least` is free.
DeviceNeeds needs_with(uint64_t free_beyond_least) {
  DeviceNeeds needs{.scratch_bytes = 1000,
                    .dense_kept_bytes = 200,
                    .state_kept_bytes = 30,
                    .state_pages_bytes = 500,
                    .experts_least_bytes = 4000,
                    .dense_parts = {100, 80, 50, 60},
                    .has_table = true};
  needs.free_bytes = 5230 + kReserve + free_beyond_least;
  return needs;
}

DeviceSplit split(const DeviceNeeds& needs) {
  const Result<DeviceSplit> found = split_device(needs);
  EXPECT_TRUE(found.ok()) << found.error().to_string();
  return found.ok() ? *found : DeviceSplit{};
}

TEST(SplitDevice, WhereEverythingFitsNothingLeaves) {
  const DeviceSplit all = split(needs_with(790));
  EXPECT_EQ(all.parts_on_host, 0u);
  EXPECT_EQ(all.state_page_bytes, 500u);
}

TEST(SplitDevice, TheTableLeavesFirstThenPagesThenTheHeadThenLayers) {
  const auto at = [&](uint64_t beyond) {
    const DeviceSplit found = split(needs_with(beyond));
    return std::pair(found.parts_on_host, found.state_page_bytes);
  };
  EXPECT_EQ(at(789), std::pair(size_t{1}, uint64_t{500}));
  EXPECT_EQ(at(690), std::pair(size_t{1}, uint64_t{500}));
  EXPECT_EQ(at(689), std::pair(size_t{1}, uint64_t{499}));
  EXPECT_EQ(at(190), std::pair(size_t{1}, uint64_t{0}));
  EXPECT_EQ(at(189), std::pair(size_t{2}, uint64_t{79}));  // pages get the rest behind the head
  EXPECT_EQ(at(109), std::pair(size_t{3}, uint64_t{49}));
  EXPECT_EQ(at(0), std::pair(size_t{4}, uint64_t{0}));
}

TEST(SplitDevice, ATiedTableIsAHead) {
  DeviceNeeds needs = needs_with(789);
  needs.has_table = false;
  EXPECT_EQ(split(needs).parts_on_host, 0u);
  EXPECT_EQ(split(needs).state_page_bytes, 499u);
}

TEST(SplitDevice, RefusesWhatCannotLeaveAndNamesIt) {
  DeviceNeeds needs = needs_with(0);
  needs.free_bytes -= 1;
  expect_error(split_device(needs), ErrorCode::kResourceExhausted,
               {format_bytes(needs.free_bytes), format_bytes(needs.free_bytes + 1), "1000 B",
                "200 B", "30 B", "3.91 KiB", format_bytes(kReserve)});
}

TEST(DeviceReserve, IsAnEighthWithinBounds) {
  EXPECT_EQ(device_reserve(0), kMiB);
  EXPECT_EQ(device_reserve(2 * kGiB), 256 * kMiB);
  EXPECT_EQ(device_reserve(80 * kGiB), kDeviceReserveBytes);
}

TEST(PlanDevice, OneOfSeveralDevicesHasTheTableAndOneTheHead) {
  const auto found = find_public_model("qwen3.6-35b-a3b");
  ASSERT_TRUE(found.ok());
  const std::unique_ptr<Device> trace = make_trace_device();
  const auto model = assume_model(found->config_json, *trace, {});
  ASSERT_TRUE(model.ok());
  std::vector<size_t> part_of_layer(40, 0);
  std::fill(part_of_layer.begin() + 30, part_of_layer.end(), 2);
  std::fill(part_of_layer.begin() + 20, part_of_layer.begin() + 30, 1);
  const auto plan = plan_device(**model, {.free_by_part = {8 * kGiB, 8 * kGiB, 8 * kGiB},
                                          .part_of_layer = part_of_layer,
                                          .context_length = 4096,
                                          .step_tokens = 512});
  ASSERT_TRUE(plan.ok()) << plan.error().to_string();
  const DenseSizes& dense = (*model)->dense;
  uint64_t sum = 0;
  for (const PartPlan& part : plan->parts) {
    EXPECT_EQ(part.scratch_bytes, plan->share.scratch_bytes);
    sum += part.dense_bytes;
  }
  // A norm has a copy on each.
  EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(dense.placed_bytes), 100e3);
  EXPECT_LT(plan->parts[1].dense_bytes, dense.lookup_bytes);
}

TEST(PlanDevice, NetworksOfADenseModelLeaveEvenlyAndWhole) {
  const auto found = find_public_model("qwen3-8b");
  ASSERT_TRUE(found.ok());
  const std::unique_ptr<Device> trace = make_trace_device();
  const auto model = assume_model(found->config_json, *trace, {});
  ASSERT_TRUE(model.ok());
  const auto plan = plan_device(
      **model,
      {.free_bytes = 3 * kGiB, .context_length = 4096, .step_tokens = 512, .copies_beside = true});
  ASSERT_TRUE(plan.ok()) << plan.error().to_string();
  std::vector<int> far(36);
  uint64_t most = 0;
  for (size_t i = 0; i < (*model)->modules.size(); ++i) {
    const ClaimedModule& module = (*model)->modules[i];
    if (!plan->dense.on_host[i] || module.canonical == "embed_tokens") continue;
    EXPECT_TRUE(module.is_network) << module.canonical;
    ++far[static_cast<size_t>(index(*module.layer()))];
    most = std::max(most, module.placed_bytes);
  }
  const auto count = std::ranges::count(far, 3);
  EXPECT_GT(count, 8);
  EXPECT_LT(count, 36);
  EXPECT_EQ(std::ranges::count(far, 0), 36 - count);
  const auto in_first_half = std::count(far.begin(), far.begin() + 18, 3);
  EXPECT_NEAR(static_cast<double>(in_first_half), static_cast<double>(count) / 2.0, 3.0);
  EXPECT_EQ(plan->networks_bytes, 2 * 3 * most);
  const auto without =
      plan_device(**model, {.free_bytes = 3 * kGiB, .context_length = 4096, .step_tokens = 512});
  ASSERT_TRUE(without.ok());
  EXPECT_EQ(without->networks_bytes, 0u);
}

TEST(DescribeHostShare, IsEmptyWhereNothingIsKept) {
  MemoryPlan plan{.dense_bytes = 3 * kGiB, .state_bytes = kGiB, .scratch_bytes = kMiB};
  EXPECT_EQ(describe_host_share(plan), "");  // memory is the host's
  plan.on_device = {plan.dense_bytes, plan.state_bytes, plan.scratch_bytes};
  EXPECT_EQ(describe_host_share(plan), "");
  plan.on_device.dense_bytes = kGiB;
  EXPECT_EQ(describe_host_share(plan), "the host keeps 2.00 GiB of 3.00 GiB of dense weights");
  plan.on_device.state_bytes = kGiB / 2;
  EXPECT_EQ(describe_host_share(plan),
            "the host keeps 2.00 GiB of 3.00 GiB of dense weights, 512.0 MiB of 1.00 GiB of a full "
            "context's state");
}

}  // namespace
}  // namespace moeflux
