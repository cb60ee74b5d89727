#include "experts/tiers/slot_memory.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "experts/expert_world_test_util.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;

/// Gives at most so many bytes at a time; remembers what it was asked for.
class LimitedDevice : public HostMemoryDevice {
 public:
  explicit LimitedDevice(uint64_t bytes, ErrorCode refusal = ErrorCode::kResourceExhausted)
      : left_(bytes), refusal_(refusal) {}
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    asked.push_back(bytes);
    if (bytes > left_) return Error(refusal_, "refused");
    MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> host, HostMemoryDevice::allocate(bytes, kind));
    return std::unique_ptr<Buffer>(std::make_unique<Part>(std::move(host), bytes, left_));
  }
  std::vector<size_t> asked;

 private:
  class Part : public Buffer {
   public:
    Part(std::unique_ptr<Buffer> host, size_t bytes, uint64_t& left)
        : host_(std::move(host)), bytes_(bytes), left_(left) {
      left_ -= bytes_;
    }
    ~Part() override { left_ += bytes_; }
    size_t size_bytes() const override { return bytes_; }
    std::byte* host_data() const override { return host_->host_data(); }

   private:
    std::unique_ptr<Buffer> host_;
    size_t bytes_;
    uint64_t& left_;
  };

  uint64_t left_;
  ErrorCode refusal_;
};

TEST(SlotMemory, IsWhatWasAskedForWhereItIsThere) {
  LimitedDevice device(800);
  std::vector<std::string> lines;
  const auto memory = allocate_slots(
      device,
      {.slots = 8, .slot_bytes = 100, .leave_bytes = 50, .on_less = [&](const std::string& line) {
         lines.push_back(line);
       }});
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->slots, 8u);
  EXPECT_EQ(device.asked, std::vector<size_t>{800});  // nobody is left anything
  EXPECT_TRUE(lines.empty());
}

TEST(SlotMemory, ShrinksByItsShareUntilItFits) {
  LimitedDevice device(500);
  std::vector<std::string> lines;
  const auto memory =
      allocate_slots(device, {.name = "near cache",
                              .slots = 8,
                              .slot_bytes = 100,
                              .share = 0.75,
                              .on_less = [&](const std::string& line) { lines.push_back(line); }});
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->slots, 4u);
  EXPECT_GE(memory->buffer->size_bytes(), 400u);
  EXPECT_EQ(device.asked, (std::vector<size_t>{800, 600, 400}));
  EXPECT_EQ(lines, std::vector<std::string>{"near cache: 400 B instead of 800 B: refused"});
}

TEST(SlotMemory, FewerSlotsLeaveWhatOthersNeed) {
  LimitedDevice device(500);
  const auto memory =
      allocate_slots(device, {.slots = 8, .slot_bytes = 100, .share = 0.875, .leave_bytes = 150});
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->slots, 3u);
  EXPECT_EQ(device.asked, (std::vector<size_t>{800, 700, 600, 500, 150, 400, 150, 300, 150}));
}

TEST(SlotMemory, WithoutRoomForTheLeastItSaysWhatTheDeviceSays) {
  LimitedDevice none(50);
  expect_error(allocate_slots(none, {.slots = 8, .slots_min = 1, .slot_bytes = 100}),
               ErrorCode::kResourceExhausted, {"refused"});
  EXPECT_EQ(none.asked, (std::vector<size_t>{800, 400, 200, 100}));
  const auto no_slots = allocate_slots(none, {.slots = 8, .slot_bytes = 100});
  ASSERT_TRUE(no_slots.ok());
  EXPECT_EQ(no_slots->slots, 0u);
  EXPECT_EQ(no_slots->buffer, nullptr);
}

TEST(SlotMemory, OtherErrorsAreNoLackOfMemory) {
  LimitedDevice lost(50, ErrorCode::kFailedPrecondition);
  expect_error(allocate_slots(lost, {.slots = 8, .slot_bytes = 100}),
               ErrorCode::kFailedPrecondition, {"refused"});
  EXPECT_EQ(lost.asked.size(), 1u);
}

}  // namespace
}  // namespace moeflux
