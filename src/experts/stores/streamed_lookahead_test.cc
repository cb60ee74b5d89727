// Guesses in decode: they shorten waits on a drive in virtual time, change no hit and no eviction,
// and are counted exactly.
#include <gtest/gtest.h>

#include <random>

#include "experts/expert_world_test_util.h"
#include "tests/support/io/faulty_reader.h"
#include "tests/support/io/pread_reader.h"
#include "tests/support/io/virtual_disk.h"
#include "tests/support/soak.h"

namespace moeflux {
namespace {

using Ids = std::vector<int32_t>;

class StreamedLookaheadTest : public ::testing::Test {
 protected:
  void hint(ExpertStore& store, int32_t layer, const Ids& ids) {
    if (!store.wants_hint(LayerId{layer})) return;
    const ScratchScope scope(encoder_);
    EXPECT_TRUE(store.hint(LayerId{layer}, encoder_, encoder_.choose(ids)).ok());
  }
  Ids random_ids(std::mt19937_64& random) {
    std::set<int32_t> ids;
    while (ids.size() < 3) ids.insert(static_cast<int32_t>(random() % ExpertWorld::kExperts));
    return {ids.begin(), ids.end()};
  }

  ExpertWorld world_;
  RoutingEncoder encoder_;
};

TEST_F(StreamedLookaheadTest, RightGuessesShortenTheWait) {
  constexpr double kBytesPerSecond = 1e6;
  const double expert = static_cast<double>(world_.table().bytes_total()) / 36 / kBytesPerSecond;
  const auto seconds = [&](LookaheadMode mode) {
    VirtualDisk disk(
        {.latency_seconds = 0, .bytes_per_second = kBytesPerSecond, .virtual_time = true});
    const auto store = world_.store(disk, 12, 4, mode);
    std::mt19937_64 random(3);
    Ids next = random_ids(random);
    for (int visit = 0; visit < 60; ++visit) {
      const Ids ids = next;
      next = random_ids(random);
      const int32_t layer = visit % ExpertWorld::kLayers;
      EXPECT_TRUE(deliver(world_, *store, encoder_, layer, ids).bytes_right);
      hint(*store, (layer + 1) % ExpertWorld::kLayers, next);
      disk.advance(2 * expert);  // attention: two reads fit
    }
    return disk.now();
  };
  const double without = seconds(LookaheadMode::kOff);
  const double with = seconds(LookaheadMode::kOn);
  EXPECT_LT(with, without - 60 * 1.0 * expert);  // at least a read a visit, of about two missed
}

TEST_F(StreamedLookaheadTest, CountsWhatWasIssuedAndWhatCameTrue) {
  FaultyReader reader({});
  const auto store = world_.store(reader, 12, 4, LookaheadMode::kOn);
  (void)deliver(world_, *store, encoder_, 0, {1, 2, 3});
  hint(*store, 1, {4, 5, 6});
  EXPECT_EQ(store->stats().prefetches, 3u);
  EXPECT_EQ(store->stats().prefetches_useful, 0u);
  const Delivery got = deliver(world_, *store, encoder_, 1, {5, 6, 7});
  EXPECT_EQ(got.sorted(), (Ids{5, 6, 7}));
  EXPECT_TRUE(got.bytes_right);
  const ExpertStats stats = store->stats();
  EXPECT_EQ(stats.prefetches, 3u);
  EXPECT_EQ(stats.prefetches_useful, 2u);
  EXPECT_EQ(stats.hits, 0u);
  EXPECT_EQ(stats.misses, 6u);  // a guess that came true was read all the same
  hint(*store, 1, {5, 6, 7});   // all there: nothing to read
  EXPECT_EQ(store->stats().prefetches, 3u);
}

TEST_F(StreamedLookaheadTest, GuessesStayWithinStagingAndReplaceOnlyGuesses) {
  FaultyReader reader({});
  const auto store = world_.store(reader, 8, 2, LookaheadMode::kOn);
  (void)deliver(world_, *store, encoder_, 0, {0, 1, 2, 3, 4, 5});
  for (int round = 0; round < 5; ++round) hint(*store, 1, {6, 7, 8, 9});
  const uint64_t misses = store->stats().misses;
  EXPECT_EQ(deliver(world_, *store, encoder_, 0, {0, 1, 2, 3, 4, 5}).waves.size(), 1u);
  EXPECT_EQ(store->stats().misses, misses);
  EXPECT_EQ(store->stats().evictions, 0u);
}

TEST_F(StreamedLookaheadTest, NeverChangesAHitOrAnEviction) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const size_t slots = 6 + seed % 34;
    const auto run = [&](LookaheadMode mode) {
      FaultyReader reader({.seed = seed, .delay_waits_max = static_cast<int>(seed % 5)});
      const auto store = world_.store(reader, slots, {}, mode);
      std::mt19937_64 random(seed);
      for (int visit = 0; visit < 200; ++visit) {
        const int32_t layer = visit % ExpertWorld::kLayers;
        const Ids ids = random_ids(random);
        const Ids guess = random_ids(random);
        EXPECT_TRUE(deliver(world_, *store, encoder_, layer, ids).bytes_right);
        hint(*store, (layer + 1) % ExpertWorld::kLayers, guess);
      }
      return store->stats();
    };
    const ExpertStats off = run(LookaheadMode::kOff);
    const ExpertStats on = run(LookaheadMode::kOn);
    EXPECT_EQ(on.hits, off.hits) << slots;
    EXPECT_EQ(on.misses, off.misses) << slots;
    EXPECT_EQ(on.evictions, off.evictions) << slots;
    EXPECT_EQ(off.prefetches, 0u);
    EXPECT_GE(on.prefetches, on.prefetches_useful);
  }
}

TEST_F(StreamedLookaheadTest, WantsNoHintsOnceEverythingIsThere) {
  FaultyReader reader({});
  const auto store = world_.store(reader, 36, {}, LookaheadMode::kOn);
  EXPECT_TRUE(store->wants_hint(LayerId{1}));
  Ids all;
  for (int32_t e = 0; e < ExpertWorld::kExperts; ++e) all.push_back(e);
  for (int32_t layer = 0; layer < ExpertWorld::kLayers; ++layer) {
    (void)deliver(world_, *store, encoder_, layer, all);
  }
  EXPECT_FALSE(store->wants_hint(LayerId{1}));
}

// Everything at once, at caches that hardly work: threads, disorder, failures, guesses right and
// wrong, prompts, leases that are dropped. MOEFLUX_TEST_SOAK_SECONDS makes it long.
TEST_F(StreamedLookaheadTest, SoakAtTheSmallestCaches) {
  testing::Soak soak(40);
  std::mt19937_64 random(11);
  int failed = 0;
  uint64_t useful = 0;
  while (soak.next()) {
    const bool threaded = soak.round() % 2 == 0;
    FaultyReader reader({.seed = random(),
                         .delay_waits_max = static_cast<int>(random() % 4),
                         .completions_per_wait_max = random() % 3,
                         .failure_probability = soak.round() % 3 == 0 ? 0.02 : 0.0},
                        threaded ? make_pread_reader(1 + static_cast<int>(random() % 4)) : nullptr);
    const size_t slots = 1 + random() % 12;
    const auto store = world_.store(reader, slots, random() % (slots + 1) / 2, LookaheadMode::kOn);
    for (int visit = 0; visit < 150; ++visit) {
      const int32_t layer = visit % ExpertWorld::kLayers;
      const bool prompt = random() % 12 == 0;
      Ids ids = random_ids(random);
      for (int64_t i = 0; prompt && i < 33; ++i) ids.push_back(static_cast<int32_t>(i % 12));
      const Delivery got =
          deliver(world_, *store, encoder_, layer, ids, random() % 20 == 0 ? 1 : 1000,
                  prompt ? prompt_of(4) : kOneOfDecode);
      ASSERT_TRUE(got.bytes_right);
      failed += got.status.ok() ? 0 : 1;
      hint(*store, (layer + 1) % ExpertWorld::kLayers, random_ids(random));
    }
    useful += store->stats().prefetches_useful;
  }
  EXPECT_GT(failed, 10);
  EXPECT_GT(useful, 50u);
}

}  // namespace
}  // namespace moeflux
