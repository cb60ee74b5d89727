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

TEST(UnitOneLaunch, GroupsOfLargeExpertsStayInPairs) {
  const UnitOneLaunch launch =
      unit_one_launch({.cols = 7168, .tiles = 256, .rows = 9}, kCores, kUnitSharedBytesMax);
  EXPECT_EQ(launch.groups, 2 * kCores / 9);
  EXPECT_EQ(launch.walk.simds, uint32_t{kUnitSimds});
  EXPECT_EQ(launch.walk.places, uint32_t{kUnitPlaces});
  EXPECT_LE(2 * (launch.bytes + 1024), kUnitSharedBytesMax + 1024);
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
