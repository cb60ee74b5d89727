#include "state/state_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "backend/encoder.h"
#include "backend/reference/reference_device.h"
#include "base/format.h"
#include "base/units.h"

namespace moeflux {
namespace {

using Use = StateMemory::Use;

/// Remembers which memory was asked for, and refuses its own when told to.
class TwoMemories : public Device {
 public:
  std::string_view name() const override { return "two"; }
  std::string_view description() const override { return "two memories"; }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    if (kind == MemoryKind::kDevice && full) {
      return make_error(refusal, "the device is full");
    }
    asked.emplace_back(kind, bytes);
    return inner_->allocate(bytes, kind);
  }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t bytes) override {
    return inner_->create_encoder(bytes);
  }

  bool full = false;
  ErrorCode refusal = ErrorCode::kResourceExhausted;
  std::vector<std::pair<MemoryKind, size_t>> asked;

 private:
  std::unique_ptr<Device> inner_ = make_reference_device();
};

class StateMemoryTest : public ::testing::Test {
 protected:
  StateMemory::Blocks take(uint64_t bytes, size_t count, Use use) {
    auto taken = memory_.take(bytes, count, use);
    EXPECT_TRUE(taken.ok());
    return std::move(taken).value();
  }

  TwoMemories device_;
  StateMemory memory_{device_};
};

TEST_F(StateMemoryTest, WithoutBoundsEverythingIsTheDevices) {
  const StateMemory::Blocks blocks = take(100, 50, Use::kPages);
  EXPECT_EQ(blocks.count, 50u);
  EXPECT_EQ(memory_.near_bytes(), 5000u);
  EXPECT_EQ(memory_.far_bytes(), 0u);
  device_.full = true;
  const auto refused = memory_.take(100, 1, Use::kPages);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
}

TEST_F(StateMemoryTest, ABlockThatWasGivenBackIsSpareWithoutBounds) {
  EXPECT_EQ(memory_.take_spare(100, Use::kEveryStep), nullptr);
  const Buffer* block = take(100, 1, Use::kEveryStep).buffer.get();
  EXPECT_EQ(memory_.near_bytes(), 0u);
  EXPECT_EQ(memory_.take_spare(101, Use::kEveryStep), nullptr);
  EXPECT_EQ(memory_.take_spare(100, Use::kEveryStep, LayerId{1}), nullptr);
  {
    const std::shared_ptr<Buffer> spare = memory_.take_spare(100, Use::kEveryStep);
    EXPECT_EQ(spare.get(), block);
    EXPECT_EQ(memory_.near_bytes(), 100u);
    EXPECT_EQ(memory_.take_spare(100, Use::kEveryStep), nullptr);
  }
  EXPECT_EQ(memory_.take_spare(100, Use::kEveryStep).get(), block);
  EXPECT_EQ(device_.asked.size(), 1u);
  (void)take(100, 2, Use::kPages);  // two in one buffer
  EXPECT_EQ(memory_.take_spare(200, Use::kEveryStep), nullptr);
}

TEST_F(StateMemoryTest, SparesAreFewAndGoWhereOtherMemoryNeedsTheRoom) {
  constexpr uint64_t kBytes = 48 * kMiB;
  {
    std::vector<StateMemory::Blocks> all;
    for (int i = 0; i < 4; ++i) all.push_back(take(kBytes, 1, Use::kEveryStep));
  }
  std::vector<std::shared_ptr<Buffer>> spares;
  while (auto spare = memory_.take_spare(kBytes, Use::kEveryStep))
    spares.push_back(std::move(spare));
  EXPECT_EQ(spares.size(), 2u);
  memory_.bound({{.near_bytes = 350}});
  spares.clear();
  (void)take(100, 1, Use::kEveryStep);
  EXPECT_EQ(memory_.take_spare(kBytes, Use::kEveryStep), nullptr);
  spares.push_back(memory_.take_spare(100, Use::kEveryStep));
  EXPECT_NE(spares.back(), nullptr);
  EXPECT_EQ(memory_.near_bytes(), 100u);
  spares.clear();
  const StateMemory::Blocks near = take(100, 2, Use::kEveryStep);
  spares.push_back(memory_.take_spare(100, Use::kEveryStep));
  EXPECT_NE(spares.back(), nullptr);  // there was room beside it
  spares.clear();
  const StateMemory::Blocks more = take(100, 2, Use::kEveryStep);
  EXPECT_EQ(more.count, 1u);
  EXPECT_EQ(memory_.take_spare(100, Use::kEveryStep), nullptr);
  StateMemory::Blocks far = take(100, 1, Use::kEveryStep);
  EXPECT_EQ(memory_.far_bytes(), 100u);
  far = {};
  EXPECT_EQ(memory_.take_spare(100, Use::kEveryStep), nullptr);  // of the host's there is none
}

TEST_F(StateMemoryTest, WhatTheDeviceDoesNotHoldIsTheHosts) {
  memory_.bound({{.near_bytes = 350}});
  const StateMemory::Blocks near = take(100, 5, Use::kPages);
  EXPECT_EQ(near.count, 3u);
  StateMemory::Blocks far = take(100, 2, Use::kPages);
  EXPECT_EQ(far.count, 2u);
  const std::vector<std::pair<MemoryKind, size_t>> expected = {{MemoryKind::kDevice, 300},
                                                               {MemoryKind::kHostVisible, 200}};
  EXPECT_EQ(device_.asked, expected);
  EXPECT_EQ(memory_.near_bytes(), 300u);
  EXPECT_EQ(memory_.far_bytes(), 200u);
  far = {};
  EXPECT_EQ(memory_.far_bytes(), 0u);
}

TEST_F(StateMemoryTest, MemoryThatIsGivenBackIsNearAgain) {
  memory_.bound({{.near_bytes = 100}});
  StateMemory::Blocks near = take(100, 1, Use::kPages);
  take(100, 1, Use::kPages);
  near = {};
  EXPECT_EQ(memory_.near_bytes(), 0u);
  const StateMemory::Blocks again = take(100, 1, Use::kPages);
  EXPECT_EQ(memory_.near_bytes(), 100u);
}

// Otherwise pages would take the room that is left for states.
TEST_F(StateMemoryTest, PagesThatAreUsedAgainCountAsPages) {
  memory_.bound({{.near_bytes = 400, .kept_bytes = 200}});
  (void)take(100, 1, Use::kPages);
  const std::shared_ptr<Buffer> page = memory_.take_spare(100, Use::kPages);
  ASSERT_NE(page, nullptr);
  const StateMemory::Blocks more = take(100, 4, Use::kPages);
  EXPECT_EQ(more.count, 1u);
  EXPECT_EQ(memory_.near_bytes(), 200u);
}

TEST_F(StateMemoryTest, PagesLeaveRoomForWhatEveryStepWrites) {
  memory_.bound({{.near_bytes = 400, .kept_bytes = 200}});
  const StateMemory::Blocks pages = take(100, 4, Use::kPages);
  EXPECT_EQ(pages.count, 2u);
  const StateMemory::Blocks kept = take(200, 1, Use::kEveryStep);
  EXPECT_EQ(memory_.near_bytes(), 400u);
  const StateMemory::Blocks more = take(200, 1, Use::kEveryStep);  // of a second sequence
  EXPECT_EQ(memory_.far_bytes(), 200u);
}

TEST_F(StateMemoryTest, ADeviceThatRefusesWhatWasLeftIsNoError) {
  memory_.bound({{.near_bytes = 1000}});
  device_.full = true;
  const StateMemory::Blocks far = take(100, 2, Use::kPages);
  EXPECT_EQ(far.count, 2u);
  EXPECT_EQ(memory_.far_bytes(), 200u);
  EXPECT_EQ(memory_.near_bytes(), 0u);
}

TEST_F(StateMemoryTest, AnotherErrorIsNoLackOfMemory) {
  memory_.bound({{.near_bytes = 1000}});
  device_.full = true;
  device_.refusal = ErrorCode::kIo;
  const auto lost = memory_.take(100, 2, Use::kPages);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code(), ErrorCode::kIo);
  EXPECT_TRUE(device_.asked.empty());
}

TEST_F(StateMemoryTest, RoomIsLeftForWhatEveryStepWritesUntilThatHasIt) {
  memory_.bound({{.near_bytes = 400, .kept_bytes = 200}});
  StateMemory::Blocks kept = take(200, 1, Use::kEveryStep);
  const StateMemory::Blocks pages = take(100, 4, Use::kPages);
  EXPECT_EQ(pages.count, 2u);
  kept = {};
  take(100, 1, Use::kPages);  // of the host's: what was given back is left again
  EXPECT_EQ(device_.asked.back().first, MemoryKind::kHostVisible);
}

TEST_F(StateMemoryTest, BuffersMayOutliveIt) {
  auto memory = std::make_unique<StateMemory>(device_);
  auto taken = memory->take(100, 1, Use::kPages);
  ASSERT_TRUE(taken.ok());
  memory.reset();
  taken->buffer.reset();
}

/// Two parts, which have two heads of three and one.
class TwoParts : public TwoMemories {
 public:
  size_t num_parts() const override { return 2; }
  std::vector<int64_t> heads_by_part(LayerId /*layer*/, int64_t heads) const override {
    return {heads - heads / 2, heads / 2};
  }
};

TEST(DividedHeads, AreNearAsLongAsEachPartHasRoomForItsOwn) {
  TwoParts device;
  StateMemory memory(device);
  memory.bound({{.near_bytes = 1000}, {.near_bytes = 25}});
  auto near = memory.take(30, 5, Use::kPages, LayerId{0}, 3);
  ASSERT_TRUE(near.ok());
  EXPECT_EQ(near->count, 2u);  // of the second part 20 bytes of 25
  EXPECT_EQ(memory.near_bytes(), 60u);
  auto far = memory.take(30, 3, Use::kPages, LayerId{0}, 3);
  ASSERT_TRUE(far.ok());
  EXPECT_EQ(far->count, 3u);
  EXPECT_EQ(memory.far_bytes(), 90u);
  // The layer's device alone has what is not divided.
  EXPECT_EQ(memory.take(30, 5, Use::kPages)->count, 5u);
  near->buffer.reset();
  EXPECT_EQ(memory.near_bytes(), 0u);
  near = memory.take(30, 1, Use::kEveryStep, LayerId{0}, 3);
  near->buffer.reset();
  EXPECT_EQ(memory.take_spare(30, Use::kEveryStep, LayerId{0}, 3), nullptr);
}

}  // namespace
}  // namespace moeflux
