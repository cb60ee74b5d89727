// How products of single tokens are shared out: every tile once, in the memory there is.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/gpu/plan.h"
#include "backend/gpu/unit_plans.h"
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

TEST(UnitOneLaunch, GroupsShareTheListOfLargeExpertsAndTheSharedOneByItself) {
  const UnitOneLaunch launch =
      unit_one_launch({.cols = 7168, .tiles = 9 * 256, .expert_tiles = 256, .shares_first = true},
                      kCores, kUnitSharedBytesMax);
  EXPECT_EQ(launch.groups, kCores);
  EXPECT_EQ(launch.threads, uint32_t{kUnitThreadsMax});
  EXPECT_EQ(launch.walk.places, uint32_t{kUnitPlaces});
  EXPECT_EQ(launch.walk.staged, launch.walk.splits);
  const Shares all = shares_of(launch);
  EXPECT_EQ(all.tiles, 9u * 256);
  EXPECT_LE(all.most, all.least + 1);
  UnitOneLaunch first = launch;
  first.walk.tiles = launch.shared_tiles;
  first.walk.full = launch.shared_full;
  const Shares shared = shares_of(first);
  EXPECT_EQ(shared.tiles, 256u);
  EXPECT_LE(shared.most, shared.least + 1);
}

TEST(UnitOneLaunch, GroupsOfSmallExpertsTakeTheListAsItIs) {
  const UnitOneLaunch launch =
      unit_one_launch({.cols = 2048, .tiles = 9 * 64, .expert_tiles = 64, .shares_first = true},
                      kCores, kUnitSharedBytesMax);
  EXPECT_EQ(launch.groups, 9u * 32);
  EXPECT_EQ(launch.walk.places, 1u);
  EXPECT_EQ(launch.shared_tiles, launch.walk.tiles);
  EXPECT_EQ(launch.shared_full, launch.walk.full);
}

TEST(UnitOneLaunch, ExpertsWithRowsOfTheirOwnHaveRoomForAllThatAGroupMeets) {
  for (const uint32_t experts : {1u, 3u, 9u}) {
    for (const uint32_t each : {1u, 4u, 5u, 448u}) {
      for (const bool has_shared : {false, true}) {
        const UnitOneLaunch launch = unit_one_launch({.cols = 2048,
                                                      .tiles = experts * each,
                                                      .expert_tiles = each,
                                                      .shares_first = has_shared && experts > 1,
                                                      .own_rows = true},
                                                     kCores, kUnitSharedBytesMax);
        // Positions of the list, and of the first expert by itself, as kernels count them.
        const auto before = [](uint32_t most, uint32_t full, uint32_t group) {
          return group * most - (group > full ? group - full : 0);
        };
        for (uint32_t group = 0; group < launch.groups; ++group) {
          const auto shared_before = [&](uint32_t g) {
            return std::min(each, before(launch.shared_tiles, launch.shared_full, g));
          };
          const auto routed_before = [&](uint32_t g) {
            return before(launch.walk.tiles, launch.walk.full, g) - shared_before(g);
          };
          uint32_t met = shared_before(group + 1) > shared_before(group) ? 1 : 0;
          if (routed_before(group + 1) > routed_before(group)) {
            met += (routed_before(group + 1) - 1) / each - routed_before(group) / each + 1;
          }
          EXPECT_LE(met * launch.walk.splits, launch.walk.staged)
              << experts << " experts of " << each << " tiles, group " << group;
        }
      }
    }
  }
}

TEST(UnitOneLaunch, GroupsOfDownHaveTilesOfAllExpertsAtMostOneASimdGroup) {
  for (const uint32_t tokens : {1u, 2u}) {
    for (const uint32_t cols : {576u, 2048u}) {
      for (const uint32_t each : {1u, 36u, 128u, 448u}) {
        UnitOneNeeds needs;
        needs.cols = cols;
        needs.expert_tiles = each;
        needs.tiles = 9 * each;
        needs.rows = tokens;
        needs.more = kRouteWords;
        const UnitOneLaunch launch = unit_down_launch(needs, kCores, kUnitSharedBytesMax);
        EXPECT_EQ(shares_of(launch).tiles, each);
        EXPECT_LE(launch.walk.tiles, launch.walk.simds);
        EXPECT_LE(launch.bytes, kUnitSharedBytesMax);
      }
    }
  }
}

TEST(UnitOneLaunch, PlacesBeginWhereLinesOfTheCacheDo) {
  for (const uint32_t more : {0u, 1u, uint32_t{kRouteWords}}) {
    for (const uint32_t cols : {512u, 2048u, 7168u}) {
      const UnitOneNeeds needs = {
          .cols = cols, .tiles = 9 * 256, .more = more, .expert_tiles = 256};
      EXPECT_EQ(unit_one_launch(needs, kCores, kUnitSharedBytesMax).walk.begin % 32, 0u);
      EXPECT_EQ(unit_down_launch(needs, kCores, kUnitSharedBytesMax).walk.begin % 32, 0u);
    }
  }
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
