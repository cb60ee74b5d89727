#include "backend/gpu/launch/launch_runs.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace moeflux::gpu {
namespace {

struct Recorded {};
using Runs = LaunchRuns<Recorded>;

Launch launch_at(void* place, uint32_t moving = 0) {
  Launch launch;
  launch.kernel = KernelId::copy_rows;
  launch.num_pointers = 1;
  launch.threads = 32;
  launch.moving = moving;
  launch.pointers[0] = place;
  return launch;
}

/// The run that a single launch is; it is added where it is new.
Runs::Run* run_of(Runs& runs, const Launch& launch) {
  runs.keep(launch);
  Runs::Run* const run = runs.find();
  if (run == nullptr) runs.add([](const Runs::Run&) {});
  runs.kept().clear();
  return run;
}

/// The run that so many launches are, which read from one place.
Runs::Run* run_of(Runs& runs, std::byte& place, size_t length, int& forgotten) {
  for (size_t i = 0; i < length; ++i) (void)runs.keep(launch_at(&place));
  Runs::Run* const run = runs.find();
  if (run == nullptr) {
    runs.add([&](const Runs::Run&) { ++forgotten; });
  }
  runs.kept().clear();
  return run;
}

TEST(LaunchRuns, KnowARunWhosePointersAreWhereTheyWere) {
  std::array<std::byte, 2> memory{};
  Runs runs;
  EXPECT_EQ(run_of(runs, launch_at(&memory[0])), nullptr);
  EXPECT_NE(run_of(runs, launch_at(&memory[0])), nullptr);
  EXPECT_EQ(run_of(runs, launch_at(&memory[1])), nullptr);
}

TEST(LaunchRuns, FollowWhatMoves) {
  std::array<std::byte, 2> memory{};
  Runs runs;
  EXPECT_EQ(run_of(runs, launch_at(&memory[0], 1)), nullptr);
  runs.keep(launch_at(&memory[1], 1));
  Runs::Run* const run = runs.find();
  ASSERT_NE(run, nullptr);
  int changed = 0;
  runs.update(*run, [&](size_t) { ++changed; });
  runs.update(*run, [&](size_t) { ++changed; });
  EXPECT_EQ(changed, 1);
  EXPECT_EQ(run->launches[0].pointers[0], &memory[1]);
}

// Launches until a run is whole.
size_t next_length(Runs& runs, std::byte& place) {
  size_t count = 1;
  while (!runs.keep(launch_at(&place))) ++count;
  runs.kept().clear();
  return count;
}

TEST(LaunchRuns, BehindAnotherDeviceAreAsLongAsItsOwn) {
  std::byte place{};
  Runs one;
  Runs two;
  const size_t first = next_length(one, place);
  const size_t second = next_length(one, place);
  EXPECT_GT(second, first);
  two.begin_behind(one);
  EXPECT_GT(next_length(two, place), second);
  two.begin();
  EXPECT_EQ(next_length(two, place), first);
}

TEST(LaunchRuns, TakeTheOldestOfManyAlike) {
  std::array<std::byte, 100> memory{};
  Runs runs;
  size_t added = 0;
  for (std::byte& place : memory) added += run_of(runs, launch_at(&place)) == nullptr ? 1 : 0;
  EXPECT_EQ(added, 64);
}

TEST(LaunchRuns, FewLongOnesAreAlike) {
  std::array<std::byte, 100> memory{};
  Runs runs;
  int forgotten = 0;
  int added = 0;
  for (std::byte& place : memory) {
    added += run_of(runs, place, 512, forgotten) == nullptr ? 1 : 0;
  }
  EXPECT_EQ(added, 2);
  EXPECT_EQ(forgotten, 0);
}

TEST(LaunchRuns, ForgetTheOneUsedLongestAgo) {
  std::byte place{};
  Runs runs;
  int forgotten = 0;
  // Their lengths differ, so none is alike.
  for (size_t length = 1; length <= 100; ++length) {
    EXPECT_EQ(run_of(runs, place, length, forgotten), nullptr);
  }
  for (size_t length = 601; forgotten == 0; ++length) {
    EXPECT_NE(run_of(runs, place, 1, forgotten), nullptr);
    EXPECT_EQ(run_of(runs, place, length, forgotten), nullptr);
  }
  EXPECT_NE(run_of(runs, place, 1, forgotten), nullptr);
  EXPECT_NE(run_of(runs, place, 100, forgotten), nullptr);
  EXPECT_EQ(run_of(runs, place, 2, forgotten), nullptr);
}

}  // namespace
}  // namespace moeflux::gpu
