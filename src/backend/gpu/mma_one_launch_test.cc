// How products of single tokens are shared out: every tile once, in the memory there is.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/gpu/mma_plans.h"
#include "backend/gpu/plan.h"
#include "base/format.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kCores = 132;

/// The sum of what groups take, and the most that one does: kernels count in the same way.
struct Shares {
  uint32_t tiles = 0;
  uint32_t most = 0;
  uint32_t least = ~0u;
};
Shares shares_of(const UnitOneLaunch& launch) {
  Shares shares;
  for (uint32_t group = 0; group < launch.groups; ++group) {
    const uint32_t own = launch.walk.tiles - (group < launch.walk.full ? 0 : 1);
    shares.tiles += own;
    shares.most = std::max(shares.most, own);
    shares.least = std::min(shares.least, own);
  }
  return shares;
}

TEST(UnitOneLaunch, GroupsTakeAllTilesEvenly) {
  for (const uint32_t bits : {4u, 8u}) {
    for (const uint32_t cols : {64u, 512u, 2048u, 7168u, 18432u}) {
      for (const uint32_t tiles : {1u, 7u, 128u, 449u, 15520u}) {
        for (const uint32_t rows : {1u, 9u, 36u}) {
          const UnitOneLaunch launch =
              unit_one_launch({.bits = bits, .cols = cols, .tiles = tiles, .rows = rows}, kCores,
                              kUnitSharedBytesMax);
          const std::string what =
              format("{} bits, {} columns, {} x {} tiles", bits, cols, tiles, rows);
          const Shares shares = shares_of(launch);
          EXPECT_EQ(shares.tiles, tiles) << what;
          EXPECT_LE(shares.most, shares.least + 1) << what;
          EXPECT_GE(shares.least, 1u) << what;
          EXPECT_LE(launch.bytes, kUnitSharedBytesMax) << what;
        }
      }
    }
  }
}

TEST(UnitOneLaunch, GroupsOfLargeExpertsStayInPairs) {
  const UnitOneLaunch launch =
      unit_one_launch({.cols = 7168, .tiles = 256, .rows = 9}, kCores, kUnitSharedBytesMax);
  EXPECT_EQ(launch.groups, 2 * kCores / 9);
  EXPECT_EQ(launch.walk.simds, uint32_t{kUnitSimds});
  EXPECT_EQ(launch.walk.places, uint32_t{kUnitPlaces});
  EXPECT_LE(2 * (launch.bytes + 1024), kUnitSharedBytesMax + 1024);
}

TEST(UnitOneLaunch, GroupsShareTheListOfLargeExpertsAndTheSharedOneByItself) {
  for (const uint32_t tokens : {1u, 2u}) {
    const UnitOneNeeds needs = {
        .cols = 7168, .tiles = 256, .rows = 9 * tokens, .more = kRouteWords};
    const auto launch = unit_list_launch(needs, 9, kCores, kUnitSharedBytesMax);
    ASSERT_TRUE(launch.has_value());
    EXPECT_EQ(launch->groups, kCores / tokens);
    EXPECT_GT(launch->threads, uint32_t{kRouteThreads}) << "some stage while others choose";
    EXPECT_EQ(launch->walk.begin % 8, 0u) << "places begin on 32-byte boundaries";
    EXPECT_LE(launch->bytes, kUnitSharedBytesMax);
    const Shares all = shares_of(*launch);
    EXPECT_EQ(all.tiles, 9u * 256);
    EXPECT_LE(all.most, all.least + 1);
    UnitOneLaunch first = *launch;
    first.walk.tiles = launch->list.shared_tiles;
    first.walk.full = launch->list.shared_full;
    const Shares shared = shares_of(first);
    EXPECT_EQ(shared.tiles, 256u);
    EXPECT_LE(shared.most, shared.least + 1);
  }
}

TEST(UnitOneLaunch, AListHasRoomForAllExpertsThatAGroupMeets) {
  for (const uint32_t experts : {2u, 9u}) {
    for (const uint32_t each : {40u, 97u, 256u}) {
      const auto launch = unit_list_launch({.cols = 7168, .tiles = each, .rows = experts}, experts,
                                           kCores, kUnitSharedBytesMax);
      if (!launch) continue;
      // Tiles before a group's, as kernels count them.
      const auto before = [](uint32_t most, uint32_t full, uint32_t group) {
        return group * most - (group > full ? group - full : 0);
      };
      const auto shared = [&](uint32_t group) {
        return before(launch->list.shared_tiles, launch->list.shared_full, group);
      };
      const auto routed = [&](uint32_t group) {
        return before(launch->walk.tiles, launch->walk.full, group) - shared(group);
      };
      const uint32_t words = launch->walk.more - launch->list.table;
      for (uint32_t group = 0; group < launch->groups; ++group) {
        ASSERT_LE(routed(group), routed(group + 1));
        uint32_t met = shared(group + 1) > shared(group) ? 1 : 0;
        if (routed(group + 1) > routed(group)) {
          met += (routed(group + 1) - 1) / each - routed(group) / each + 1;
        }
        EXPECT_LE(met * kUnitListWords, words) << experts << " of " << each << ", group " << group;
      }
      EXPECT_EQ(routed(launch->groups), (experts - 1) * each);
    }
  }
}

TEST(UnitOneLaunch, SmallExpertsAreNoList) {
  EXPECT_FALSE(
      unit_list_launch({.cols = 2048, .tiles = 64, .rows = 9}, 9, kCores, kUnitSharedBytesMax));
}

TEST(UnitOneLaunch, AGroupOfALargeMatrixHasAMultiprocessorForItself) {
  for (const uint32_t cols : {7168u, 18432u}) {
    const UnitOneLaunch narrow =
        unit_one_launch({.cols = cols, .tiles = 2304}, kCores, kUnitSharedBytesMax);
    EXPECT_EQ(narrow.groups, kCores);
    EXPECT_EQ(narrow.threads, uint32_t{kUnitThreadsMax});
    EXPECT_EQ(narrow.walk.by_splits, 1u);
    const UnitOneLaunch wide =
        unit_one_launch({.bits = 8, .cols = cols, .tiles = 2304}, kCores, kUnitSharedBytesMax);
    EXPECT_EQ(wide.groups, kCores);
    EXPECT_EQ(wide.threads, uint32_t{kUnitThreads});
  }
}

TEST(UnitOneLaunch, GroupsThatMakeTheirRowHaveTheThreadsForIt) {
  const UnitOneLaunch launch = unit_one_launch({.cols = 4096, .tiles = 2304, .makes_row = true},
                                               kCores, kUnitSharedBytesMax);
  EXPECT_EQ(launch.threads, uint32_t{kUnitThreads});
  EXPECT_EQ(launch.walk.by_splits, 0u);
}

TEST(UnitOneLaunch, EverySimdGroupThatWalksIsBusyInEveryTurn) {
  // Six tiles of three splits each: in three turns whether by six SIMD groups or by eight.
  const UnitOneLaunch launch = unit_one_launch({.cols = 1536, .tiles = 1536, .makes_row = true},
                                               kCores, kUnitSharedBytesMax);
  EXPECT_EQ(launch.walk.tiles * launch.walk.splits, 18u);
  EXPECT_EQ(launch.walk.simds, 6u);
}

TEST(UnitOneLaunch, SmallProductsHaveAGroupForEveryFewSplits) {
  const UnitOneLaunch launch =
      unit_one_launch({.cols = 2048, .tiles = 64, .rows = 9}, kCores, kUnitSharedBytesMax);
  EXPECT_EQ(launch.groups, 32u);
  EXPECT_EQ(launch.walk.places, 1u);
}

TEST(UnitOneLaunch, TheLeastMemorySuffices) {
  for (const uint32_t bits : {4u, 8u}) {
    for (const uint32_t cols : {64u, 4160u, 18432u}) {
      const uint32_t least = unit_one_bytes_min(bits, cols);
      for (const uint32_t tiles : {1u, 300u}) {
        const UnitOneLaunch launch = unit_one_launch(
            {.bits = bits, .cols = cols, .tiles = tiles, .more = kRouteWords}, kCores, least);
        EXPECT_LE(launch.bytes, least) << bits << " bits, " << cols << " columns";
      }
    }
  }
}

}  // namespace
}  // namespace moeflux::gpu
