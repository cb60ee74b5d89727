// How products of single tokens are shared out: every tile once, in the memory there is.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/gpu/kernels/matmul/ggml_params.h"
#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/launch/plan.h"
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
Shares shares_of(const MmaOneLaunch& launch) {
  Shares shares;
  for (uint32_t group = 0; group < launch.groups; ++group) {
    const uint32_t own = launch.walk.tiles - (group < launch.walk.full ? 0 : 1);
    shares.tiles += own;
    shares.most = std::max(shares.most, own);
    shares.least = std::min(shares.least, own);
  }
  return shares;
}

TEST(MmaOneLaunch, GroupsTakeAllTilesEvenly) {
  for (const uint32_t bits : {4u, 8u}) {
    for (const uint32_t cols : {64u, 512u, 2048u, 7168u, 18432u}) {
      for (const uint32_t tiles : {1u, 7u, 128u, 449u, 15520u}) {
        for (const uint32_t rows : {1u, 9u, 36u}) {
          const MmaOneLaunch launch =
              mma_one_launch({.bits = bits, .cols = cols, .tiles = tiles, .rows = rows}, kCores,
                             kMmaSharedBytesMax);
          const std::string what =
              formatted("{} bits, {} columns, {} x {} tiles", bits, cols, tiles, rows);
          const Shares shares = shares_of(launch);
          EXPECT_EQ(shares.tiles, tiles) << what;
          EXPECT_LE(shares.most, shares.least + 1) << what;
          EXPECT_GE(shares.least, 1u) << what;
          EXPECT_LE(launch.bytes, kMmaSharedBytesMax) << what;
        }
      }
    }
  }
}

TEST(MmaOneLaunch, AGroupOfLongRowsThatIsAloneHasMoreSimdGroups) {
  for (const uint32_t bits : {4u, 8u}) {
    MmaOneNeeds needs{.bits = bits, .cols = 10240, .tiles = 21, .may_double = true};
    const MmaOneLaunch alone = mma_one_launch(needs, kCores, kMmaSharedBytesMax);
    EXPECT_EQ(alone.groups, 21u);
    EXPECT_EQ(alone.threads, uint32_t{kMmaThreadsMax});
    EXPECT_EQ(alone.walk.simds, 10u) << "20 splits in two turns";
    EXPECT_LE(alone.bytes, kMmaSharedBytesMax);
    needs.may_double = false;
    EXPECT_EQ(mma_one_launch(needs, kCores, kMmaSharedBytesMax).threads, uint32_t{kMmaThreads});
    needs.may_double = true;
    needs.tiles = kCores + 1;
    EXPECT_NE(mma_one_launch(needs, kCores, kMmaSharedBytesMax).threads, uint32_t{kMmaThreadsMax});
  }
}

TEST(MmaOneLaunch, GroupsOfLargeExpertsStayInPairs) {
  const MmaOneLaunch launch =
      mma_one_launch({.cols = 7168, .tiles = 256, .rows = 9}, kCores, kMmaSharedBytesMax);
  EXPECT_EQ(launch.groups, 2 * kCores / 9);
  EXPECT_EQ(launch.walk.simds, uint32_t{kMmaSimds});
  EXPECT_EQ(launch.walk.places, uint32_t{kMmaPlaces});
  EXPECT_LE(2 * (launch.bytes + 1024), kMmaSharedBytesMax + 1024);
}

TEST(MmaOneLaunch, GroupsShareTheListOfLargeExpertsAndTheSharedOneByItself) {
  for (const uint32_t tokens : {1u, 2u}) {
    const MmaOneNeeds needs = {.cols = 7168, .tiles = 256, .rows = 9 * tokens, .more = kRouteWords};
    const auto launch = mma_list_launch(needs, 9, kCores, kMmaSharedBytesMax);
    ASSERT_TRUE(launch.has_value());
    EXPECT_EQ(launch->groups, kCores / tokens);
    EXPECT_GT(launch->threads, uint32_t{kRouteThreads}) << "some stage while others choose";
    EXPECT_EQ(launch->walk.begin % 8, 0u) << "places begin on 32-byte boundaries";
    EXPECT_LE(launch->bytes, kMmaSharedBytesMax);
    const Shares all = shares_of(*launch);
    EXPECT_EQ(all.tiles, 9u * 256);
    EXPECT_LE(all.most, all.least + 1);
    MmaOneLaunch first = *launch;
    first.walk.tiles = launch->list.shared_tiles;
    first.walk.full = launch->list.shared_full;
    const Shares shared = shares_of(first);
    EXPECT_EQ(shared.tiles, 256u);
    EXPECT_LE(shared.most, shared.least + 1);
  }
}

TEST(MmaOneLaunch, AListHasRoomForAllExpertsThatAGroupMeets) {
  for (const uint32_t experts : {2u, 9u}) {
    for (const uint32_t each : {40u, 97u, 256u}) {
      const auto launch = mma_list_launch({.cols = 7168, .tiles = each, .rows = experts}, experts,
                                          kCores, kMmaSharedBytesMax);
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
        EXPECT_LE(met * kMmaListWords, words) << experts << " of " << each << ", group " << group;
      }
      EXPECT_EQ(routed(launch->groups), (experts - 1) * each);
    }
  }
}

TEST(MmaOneLaunch, SmallExpertsAreNoList) {
  EXPECT_FALSE(
      mma_list_launch({.cols = 2048, .tiles = 64, .rows = 9}, 9, kCores, kMmaSharedBytesMax));
}

TEST(MmaOneLaunch, AGroupOfALargeMatrixHasAMultiprocessorForItself) {
  for (const uint32_t cols : {7168u, 18432u}) {
    const MmaOneLaunch narrow =
        mma_one_launch({.cols = cols, .tiles = 2304}, kCores, kMmaSharedBytesMax);
    EXPECT_EQ(narrow.groups, kCores);
    EXPECT_EQ(narrow.threads, uint32_t{kMmaThreadsMax});
    EXPECT_EQ(narrow.walk.by_splits, 1u);
    const MmaOneLaunch wide =
        mma_one_launch({.bits = 8, .cols = cols, .tiles = 2304}, kCores, kMmaSharedBytesMax);
    EXPECT_EQ(wide.groups, kCores);
    EXPECT_EQ(wide.threads, uint32_t{kMmaThreads});
  }
}

TEST(MmaOneLaunch, GroupsThatMakeTheirRowHaveTheThreadsForIt) {
  const MmaOneLaunch launch =
      mma_one_launch({.cols = 4096, .tiles = 2304, .makes_row = true}, kCores, kMmaSharedBytesMax);
  EXPECT_EQ(launch.threads, uint32_t{kMmaThreads});
  EXPECT_EQ(launch.walk.by_splits, 0u);
}

TEST(MmaOneLaunch, EverySimdGroupThatWalksIsBusyInEveryTurn) {
  // Six tiles of three splits each: in three turns whether by six SIMD groups or by eight.
  const MmaOneLaunch launch =
      mma_one_launch({.cols = 1536, .tiles = 1536, .makes_row = true}, kCores, kMmaSharedBytesMax);
  EXPECT_EQ(launch.walk.tiles * launch.walk.splits, 18u);
  EXPECT_EQ(launch.walk.simds, 6u);
}

TEST(MmaOneLaunch, SmallProductsHaveAGroupForEveryFewSplits) {
  const MmaOneLaunch launch =
      mma_one_launch({.cols = 2048, .tiles = 64, .rows = 9}, kCores, kMmaSharedBytesMax);
  EXPECT_EQ(launch.groups, 32u);
  EXPECT_EQ(launch.walk.places, 1u);
}

TEST(MmaOneLaunch, TheLeastMemorySuffices) {
  for (const uint32_t bits : {4u, 8u}) {
    for (const uint32_t cols : {64u, 4160u, 18432u}) {
      const uint32_t least = mma_one_bytes_min(bits, cols);
      for (const uint32_t tiles : {1u, 300u}) {
        const MmaOneLaunch launch = mma_one_launch(
            {.bits = bits, .cols = cols, .tiles = tiles, .more = kRouteWords}, kCores, least);
        EXPECT_LE(launch.bytes, least) << bits << " bits, " << cols << " columns";
      }
    }
  }
}

// An H200's shared memory holds what its multiprocessors need under way, whatever the type.
TEST(MmaOneLaunch, GgmlTypesHaveRoomForManySplits) {
  for (const uint32_t type : {u32{kGgml_q4_k}, u32{kGgml_q6_k}, u32{kGgml_q8_0}}) {
    const MmaOneLaunch launch =
        mma_one_launch({.bits = type, .cols = 7168, .tiles = 2304}, kCores, kMmaSharedBytesMax);
    EXPECT_EQ(launch.walk.places, uint32_t{kMmaPlaces}) << type;
    EXPECT_EQ(launch.walk.place_words, mma_place_words(type));
    EXPECT_GE(launch.walk.simds * kMmaPlaces * launch.walk.place_words * sizeof(u32), 96u * 1024)
        << type;
    EXPECT_LE(launch.bytes, kMmaSharedBytesMax);
  }
  // The experts of a token, with the shared one, as one list.
  EXPECT_TRUE(mma_list_launch({.bits = kGgml_q4_k, .cols = 2048, .tiles = 64, .rows = 9}, 9, kCores,
                              kMmaSharedBytesMax));
}

TEST(MmaOneLaunch, ActivationsLieBehindTheLargestGrid) {
  for (const uint32_t words : {0u, u32{kGgmlGridWords}, u32{kGgmlWideGridWords}}) {
    const MmaOneLaunch launch =
        mma_one_launch({.bits = kGgml_iq1_s, .cols = 2048, .tiles = 64, .grid_words = words},
                       kCores, kMmaSharedBytesMax);
    EXPECT_EQ(launch.walk.integers, words == 0 ? 0 : kGgmlGrid + words);
  }
  EXPECT_EQ(grid_words(kGgml_iq1_m), u32{kGgmlWideGridWords});
  EXPECT_EQ(grid_words(kGgml_q4_k), 0u);
}

// A SIMD group has 32 rows and a split of 512 columns, of 10 KiB in 4 bits.
TEST(MmaFewLaunch, GroupsOfSlotsHaveNoMoreSimdGroupsThanASetNeeds) {
  struct Case {
    uint32_t cols, simds, threads, rows;
  };
  for (const Case& c : {Case{2048, 4, 128, 32},
                        {2048, 8, 256, 64},
                        {512, 4, 128, 128},
                        {512, 8, 256, 256},
                        {4096, 4, 256, 32},
                        {1088, 4, 96, 32}}) {
    SCOPED_TRACE(formatted("{} columns, {} SIMD groups", c.cols, c.simds));
    const auto launch = mma_slots_launch(4, c.cols, 8, c.simds, kMmaSharedBytesMax);
    ASSERT_TRUE(launch);
    EXPECT_EQ(launch->threads, c.threads);
    EXPECT_EQ(launch->rows, c.rows);
    EXPECT_EQ(launch->tokens, 8u);
    EXPECT_EQ(launch->bytes, c.threads / 32 * 10240);
    EXPECT_FALSE(mma_slots_launch(4, c.cols, 8, c.simds, launch->bytes - 1));
  }
}

TEST(MmaFewLaunch, SixteenTokensAndGgmlTypesHaveGroupsOfFourSimdGroups) {
  const auto threads = [](uint32_t bits, uint32_t tokens) {
    return mma_few_launch(bits, 2048, tokens, kCores, kMmaSharedBytesMax,
                          [](uint32_t rows) { return 248320 / rows; })
        ->threads;
  };
  EXPECT_EQ(threads(4, 8), 256u);
  EXPECT_EQ(threads(4, 16), 128u);
  EXPECT_EQ(threads(4, 32), 256u);
  EXPECT_EQ(threads(8, 16), 256u);
  EXPECT_EQ(threads(kGgml_q6_k, 8), 128u);
  EXPECT_EQ(threads(kGgml_q4_k, 32), 128u);
}

}  // namespace
}  // namespace moeflux::gpu
