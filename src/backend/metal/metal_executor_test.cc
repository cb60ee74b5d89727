#include "backend/metal/metal_executor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "backend/metal/metal_device.h"
#include "tests/support/expect_error.h"
#include "tests/support/fake_metal_gpu.h"

namespace moeflux::gpu {
namespace {

using testing::FakeMetalLog;
using testing::make_fake_metal_gpu;

constexpr uint32_t kNumbers = 64;

class MetalExecutorTest : public ::testing::Test {
 protected:
  std::unique_ptr<Buffer> numbers(uint32_t count = kNumbers) {
    return gpu_->allocate(count * sizeof(float)).value();
  }
  static std::vector<float> counted(float from, size_t count = kNumbers) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), from);
    return values;
  }
  void write(Buffer& to, const std::vector<float>& values) {
    executor_->write(to, 0, std::as_bytes(std::span(values)));
  }
  std::vector<float> read(const Buffer& from, size_t count = kNumbers) {
    std::vector<float> values(count);
    const Status done = executor_->read(std::as_writable_bytes(std::span(values)), from, 0);
    EXPECT_TRUE(done.ok()) << done.error().to_string();
    return values;
  }
  /// to = from
  void copy(Buffer& to, Buffer& from) { executor_->record(plan(to, from, {1, 1, 1})); }

  static Plan plan(Buffer& to, Buffer& from, const Extent3& groups) {
    Plan plan;
    plan.kernel = KernelId::copy_rows;
    plan.bind({&from, 0, kNumbers * sizeof(float), Access::kRead});
    plan.bind({&to, 0, kNumbers * sizeof(float), Access::kOverwrite});
    RowsParams p{};
    p.out = {{0, 0, kNumbers}, {1, 1, 1}, kNumbers};
    p.a = p.out;
    p.rows = 1;
    p.cols = kNumbers;
    plan.set_params(p);
    plan.groups = groups;
    plan.group_size = kNumbers;
    return plan;
  }

  FakeMetalLog log_;
  std::unique_ptr<MetalGpu> gpu_ = make_fake_metal_gpu({.seed = 1}, &log_);
  std::unique_ptr<Executor> executor_ = make_metal_executor(*gpu_).value();
};

TEST_F(MetalExecutorTest, RunsPlansAndWritesInTheOrderTheyCameIn) {
  const auto a = numbers();
  const auto b = numbers();
  const auto c = numbers();
  write(*a, counted(1));
  copy(*b, *a);
  write(*a, counted(100));
  copy(*c, *a);
  write(*a, counted(1000));
  EXPECT_EQ(read(*b), counted(1));
  EXPECT_EQ(read(*c), counted(100));
  EXPECT_EQ(read(*a), counted(1000));
}

TEST_F(MetalExecutorTest, WhatIsBetweenTwoSubmissionsIsOneCommandBuffer) {
  const auto a = numbers();
  const auto b = numbers();
  write(*a, counted(1));  // nothing is before it: the host's own
  EXPECT_EQ(log_.copies, 0);
  for (int i = 0; i < 10; ++i) {
    copy(*b, *a);
    write(*a, counted(static_cast<float>(i)));
  }
  EXPECT_EQ(log_.commits, 0);
  EXPECT_EQ(log_.copies, 10);
  executor_->submit();
  EXPECT_EQ(log_.commits, 1);
  const EventId nothing = executor_->submit();
  EXPECT_EQ(log_.commits, 1);
  EXPECT_TRUE(executor_->wait(nothing).ok());
}

TEST_F(MetalExecutorTest, AnEventPassesWithAllThatWasSubmittedBefore) {
  const auto a = numbers();
  const auto b = numbers();
  write(*a, counted(1));
  copy(*b, *a);
  const EventId first = executor_->submit();
  const EventId empty = executor_->submit();
  copy(*a, *b);
  const EventId last = executor_->submit();
  EXPECT_FALSE(executor_->has_passed(empty));
  EXPECT_FALSE(executor_->has_passed(last));
  EXPECT_TRUE(executor_->has_passed(first));
  EXPECT_TRUE(executor_->wait(empty).ok());
  EXPECT_EQ(log_.ran, 1);
  EXPECT_TRUE(executor_->wait(last).ok());
  EXPECT_EQ(log_.ran, 2);
  EXPECT_TRUE(executor_->has_passed(last));
}

TEST_F(MetalExecutorTest, MoreWritesThanThereIsRoomForWaitForTheGpu) {
  const auto a = numbers();
  const auto b = numbers();
  constexpr auto kCount =
      static_cast<uint32_t>(3 * kMetalStagingBlocks * kMetalStagingBlockBytes / sizeof(float) + 5);
  const auto large = numbers(kCount);
  write(*a, counted(1));
  copy(*b, *a);
  const int64_t before = log_.live_buffers;
  const std::vector<float> values = counted(0, kCount);
  write(*large, values);
  EXPECT_LE(log_.live_buffers - before, static_cast<int64_t>(kMetalStagingBlocks));
  EXPECT_EQ(read(*large, kCount), values);
  EXPECT_EQ(read(*b), counted(1));
  // Its memory serves again.
  copy(*a, *b);
  write(*large, values);
  EXPECT_LE(log_.live_buffers - before, static_cast<int64_t>(kMetalStagingBlocks));
  EXPECT_EQ(read(*large, kCount), values);
}

TEST_F(MetalExecutorTest, PartsOfWordsArriveInTheirTurnToo) {
  const auto a = numbers();
  const auto b = numbers();
  write(*a, counted(1));
  copy(*b, *a);
  const std::vector<std::byte> bytes(3, std::byte{0});
  executor_->write(*a, 1, bytes);
  EXPECT_EQ(read(*b), counted(1));
  std::vector<float> expected = counted(1);
  std::memcpy(reinterpret_cast<std::byte*>(expected.data()) + 1, bytes.data(), bytes.size());
  EXPECT_EQ(read(*a), expected);
}

TEST_F(MetalExecutorTest, PlansOfNoGroupsDoNothing) {
  const auto a = numbers();
  const auto b = numbers();
  executor_->record(plan(*b, *a, {1, 0, 1}));
  executor_->submit();
  EXPECT_EQ(log_.commits, 0);
}

TEST_F(MetalExecutorTest, AnErrorStaysAndNothingMoreIsHandedOver) {
  const auto a = numbers();
  const auto b = numbers();
  log_.fails_at = 2;
  for (int i = 0; i < 3; ++i) {
    copy(*b, *a);
    executor_->submit();
  }
  testing::expect_error(executor_->wait(EventId{3}), ErrorCode::kIo, {"command buffer 2"});
  copy(*b, *a);
  write(*a, counted(1));
  const EventId last = executor_->submit();
  EXPECT_EQ(log_.commits, 3);
  EXPECT_TRUE(executor_->has_passed(last));
  std::vector<float> values(kNumbers);
  testing::expect_error(executor_->read(std::as_writable_bytes(std::span(values)), *a, 0),
                        ErrorCode::kIo, {"command buffer 2"});
}

TEST_F(MetalExecutorTest, WhatWasSubmittedHasRunWhenItGoes) {
  const auto a = numbers();
  const auto b = numbers();
  write(*a, counted(7));
  copy(*b, *a);
  executor_->submit();
  copy(*a, *b);  // never handed over
  executor_.reset();
  EXPECT_EQ(std::memcmp(b->host_data(), a->host_data(), kNumbers * sizeof(float)), 0);
  EXPECT_EQ(log_.commits, 1);
}

TEST(MetalDevice, SaysThatThereIsNone) {
#ifndef __APPLE__
  testing::expect_error(make_metal_device(), ErrorCode::kUnsupported, {"metal", "macOS"});
#endif
}

}  // namespace
}  // namespace moeflux::gpu
