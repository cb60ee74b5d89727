#include "engine/memory_pressure.h"

#include <gtest/gtest.h>

#include "base/units.h"

namespace moeflux {
namespace {

using std::chrono::milliseconds;

class MemoryPressureTest : public ::testing::Test {
 protected:
  uint64_t look_at(milliseconds time) {
    return pressure_.bytes_to_release(MemoryPressure::Clock::time_point(time));
  }

  HostMemory memory_{.total_bytes = 1000, .available_bytes = 1000};
  int looks_ = 0;
  MemoryPressure pressure_{[this] {
                             ++looks_;
                             return memory_;
                           },
                           {.low_bytes = 100, .high_bytes = 200, .interval = milliseconds(10)}};
};

TEST_F(MemoryPressureTest, GivesBackUpToTheHighMarkFromBelowTheLowOne) {
  memory_.available_bytes = 99;
  EXPECT_EQ(look_at(milliseconds(1000)), 101u);
  memory_.available_bytes = 0;
  EXPECT_EQ(look_at(milliseconds(1010)), 200u);
}

TEST_F(MemoryPressureTest, BetweenTheMarksNothingHappens) {
  for (const uint64_t available : {uint64_t{100}, uint64_t{150}, uint64_t{200}, 100 * kGiB}) {
    memory_.available_bytes = available;
    EXPECT_EQ(look_at(milliseconds(1000 + looks_ * 10)), 0u) << available;
  }
  EXPECT_EQ(looks_, 4);
}

TEST_F(MemoryPressureTest, LooksOnceAnInterval) {
  memory_.available_bytes = 0;
  EXPECT_EQ(look_at(milliseconds(1000)), 200u);
  EXPECT_EQ(look_at(milliseconds(1009)), 0u);
  EXPECT_EQ(looks_, 1);
  EXPECT_EQ(look_at(milliseconds(1010)), 200u);
  EXPECT_EQ(looks_, 2);
}

TEST_F(MemoryPressureTest, ASystemThatTellsNothingIsNotShortOfMemory) {
  memory_ = {};
  EXPECT_EQ(look_at(milliseconds(1000)), 0u);
  EXPECT_EQ(looks_, 1);
  EXPECT_EQ(MemoryPressure().bytes_to_release(), 0u);
}

}  // namespace
}  // namespace moeflux
