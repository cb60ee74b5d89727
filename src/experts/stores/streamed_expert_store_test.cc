#include "experts/stores/streamed_expert_store.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <numeric>
#include <random>

#include "experts/expert_world_test_util.h"
#include "tests/support/io/faulty_reader.h"
#include "tests/support/io/pread_reader.h"
#include "tests/support/io/refused_entries.h"

namespace moeflux {
namespace {

constexpr int32_t kStoreLayer = 1;
constexpr uint64_t kReadsPerExpert = 3;

std::vector<int32_t> first_experts(int32_t n) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

class StreamedExpertStoreTest : public ::testing::Test {
 protected:
  Delivery take(ExpertStore& store, std::vector<int32_t> ids, int32_t layer = kStoreLayer) {
    return deliver(world_, store, encoder_, layer, std::move(ids));
  }

  ExpertWorld world_;
  RoutingEncoder encoder_;
};

TEST_F(StreamedExpertStoreTest, DeliversHitsBeforeMisses) {
  FaultyReader reader({});
  const auto store = world_.store(reader, 8);
  EXPECT_EQ(take(*store, {4, 7}).sorted(), (std::vector<int32_t>{4, 7}));
  const Delivery second = take(*store, {9, 7, 2, 4});
  ASSERT_GE(second.waves.size(), 2u);
  EXPECT_EQ(second.waves.front(), (std::vector<int32_t>{4, 7}));
  EXPECT_EQ(second.sorted(), (std::vector<int32_t>{2, 4, 7, 9}));
  EXPECT_TRUE(second.bytes_right);
  const ExpertStats stats = store->stats();
  EXPECT_EQ(stats.hits, 2u);
  EXPECT_EQ(stats.misses, 4u);
  EXPECT_EQ(stats.evictions, 0u);
  EXPECT_EQ(stats.bytes_read, 4 * world_.table().layer(LayerId{kStoreLayer}).bytes_per_expert());
}

TEST_F(StreamedExpertStoreTest, HitsNeedNoRead) {
  FaultyReader reader({});
  const auto store = world_.store(reader, 8);
  (void)take(*store, {1, 2, 3});
  const uint64_t reads = reader.reads_submitted();
  EXPECT_EQ(take(*store, {3, 2, 1, 1, 1}).waves, (std::vector<std::vector<int32_t>>{{1, 2, 3}}));
  EXPECT_EQ(reader.reads_submitted(), reads);
}

TEST_F(StreamedExpertStoreTest, DeliversEveryExpertOnceWhateverTheOrderOfArrival) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    FaultyReader reader({.seed = seed,
                         .delay_waits_max = static_cast<int>(seed % 4),
                         .completions_per_wait_max = seed % 3,
                         .piece_bytes_max = seed % 5 * 7});
    const auto store = world_.store(reader, 1 + seed % 12);
    const Delivery delivery = take(*store, {5, 5, 0, 11, 3, 0, 7, 2, 5, 8});
    ASSERT_TRUE(delivery.status.ok());
    EXPECT_EQ(delivery.sorted(), (std::vector<int32_t>{0, 2, 3, 5, 7, 8, 11})) << seed;
    EXPECT_TRUE(delivery.bytes_right) << seed;
  }
}

TEST_F(StreamedExpertStoreTest, MoreExpertsThanSlotsComeInWaves) {
  for (const size_t slots : {1, 2, 3}) {
    FaultyReader reader({});
    const auto store = world_.store(reader, slots);
    const int waits_before = encoder_.waits();
    const Delivery delivery = take(*store, first_experts(10));
    ASSERT_TRUE(delivery.status.ok());
    EXPECT_EQ(delivery.sorted(), first_experts(10));
    EXPECT_TRUE(delivery.bytes_right);
    for (const auto& wave : delivery.waves) EXPECT_LE(wave.size(), slots);
    // A slot is taken again only after the work on it was waited for.
    EXPECT_GE(encoder_.waits() - waits_before, static_cast<int>(10 / slots) - 1) << slots;
    EXPECT_EQ(store->stats().evictions, 10 - slots);
    EXPECT_EQ(store->capacity_bytes(), slots * world_.slot_bytes());
  }
}

TEST_F(StreamedExpertStoreTest, HitsMayFillEverySlotWhileMissesWait) {
  FaultyReader reader({});
  const auto store = world_.store(reader, 2);
  (void)take(*store, {3, 4});
  const Delivery delivery = take(*store, {1, 2, 3, 4, 5});
  EXPECT_EQ(delivery.waves.front(), (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(delivery.sorted(), (std::vector<int32_t>{1, 2, 3, 4, 5}));
  EXPECT_TRUE(delivery.bytes_right);
}

TEST_F(StreamedExpertStoreTest, FailedReadNamesTheExpertAndHarmsNoOther) {
  for (uint64_t part = 0; part < kReadsPerExpert; ++part) {
    FaultyReader reader({.reorder = false, .failing_reads = {2 * kReadsPerExpert + part}});
    const auto store = world_.store(reader, 8);
    const Delivery failed = take(*store, {1, 3, 6, 8});
    ASSERT_FALSE(failed.status.ok());
    EXPECT_EQ(failed.status.error().code(), ErrorCode::kIo);
    EXPECT_NE(failed.status.error().message().find("layer 1 expert 6"), std::string::npos)
        << failed.status.error().message();
    const uint64_t reads = reader.reads_submitted();
    const Delivery again = take(*store, {1, 3, 6, 8});
    ASSERT_TRUE(again.status.ok());
    EXPECT_EQ(again.waves, (std::vector<std::vector<int32_t>>{{1, 3, 8}, {6}}));
    EXPECT_TRUE(again.bytes_right);
    EXPECT_EQ(reader.reads_submitted() - reads, kReadsPerExpert);
  }
}

TEST_F(StreamedExpertStoreTest, AnErrnoNeverSeenEndsTheStepAndTheNextOneHasItsBytes) {
  for (const int number : {EINVAL, EEXIST, ENXIO}) {
    RefusedEntries entries;
    auto reader = make_uring_reader(
        {.scheduler = {.depth = 4, .speculative_depth = 1}, .entry_filter = &entries});
    if (!reader.ok()) GTEST_SKIP() << "hardware: " << reader.error().to_string();
    const auto store = world_.store(**reader, 8);
    for (int allowed = 0; allowed < 3; ++allowed) {
      entries.refuse_after(allowed, 1, number);
      const std::vector<int32_t> ids = {allowed, 3 + allowed, 6 + allowed, 9 + allowed};
      const Delivery failed = take(*store, ids);
      EXPECT_EQ(failed.status.ok(), entries.refused() == 0);
      if (!failed.status.ok()) {
        EXPECT_EQ(failed.status.error().code(), ErrorCode::kIo);
        EXPECT_NE(failed.status.error().message().find("io_uring_enter"), std::string::npos)
            << failed.status.error().message();
      }
      const Delivery again = take(*store, ids);
      ASSERT_TRUE(again.status.ok()) << again.status.error().to_string();
      EXPECT_EQ(again.sorted(), ids);
      EXPECT_TRUE(again.bytes_right);
    }
  }
}

TEST_F(StreamedExpertStoreTest, StaysUsableWithOneSlotWhenItsReadFails) {
  FaultyReader reader({.failing_reads = {1}});
  const auto store = world_.store(reader, 1);
  EXPECT_FALSE(take(*store, {5}).status.ok());
  const Delivery again = take(*store, {5, 6});
  ASSERT_TRUE(again.status.ok());
  EXPECT_EQ(again.sorted(), (std::vector<int32_t>{5, 6}));
  EXPECT_TRUE(again.bytes_right);
}

TEST_F(StreamedExpertStoreTest, LeaseDroppedWithReadsInFlightLeavesNoneBehind) {
  for (const bool threaded : {false, true}) {
    FaultyReader reader({.delay_waits_max = 6, .completions_per_wait_max = 1},
                        threaded ? make_pread_reader(3) : nullptr);
    const auto store = world_.store(reader, 6);
    for (const int waves : {0, 1, 2}) {
      (void)deliver(world_, *store, encoder_, kStoreLayer, first_experts(10), waves);
      EXPECT_EQ(reader.in_flight(), 0u);
    }
    const Delivery after = take(*store, first_experts(10));
    EXPECT_EQ(after.sorted(), first_experts(10));
    EXPECT_TRUE(after.bytes_right);
  }
}

TEST_F(StreamedExpertStoreTest, LayersShareTheSlots) {
  FaultyReader reader({});
  const auto store = world_.store(reader, 3);
  for (int round = 0; round < 3; ++round) {
    for (int32_t layer = 0; layer < ExpertWorld::kLayers; ++layer) {
      const Delivery delivery = take(*store, {2, 9}, layer);
      EXPECT_EQ(delivery.sorted(), (std::vector<int32_t>{2, 9}));
      EXPECT_TRUE(delivery.bytes_right);
    }
  }
}

TEST_F(StreamedExpertStoreTest, BoundBelowOneExpertIsRefusedWithBothSizes) {
  FaultyReader reader({});
  const auto store =
      make_streamed_expert_store(world_.table(), world_.index(), reader, world_.device(),
                                 {.capacity_bytes = world_.slot_bytes() - 1});
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_NE(store.error().message().find("cannot hold one expert"), std::string::npos);
}

TEST_F(StreamedExpertStoreTest, CapacityStaysUnderTheBoundAndWithinTheModel) {
  FaultyReader reader({});
  const auto capacity = [&](uint64_t bound) {
    auto store = make_streamed_expert_store(world_.table(), world_.index(), reader, world_.device(),
                                            {.capacity_bytes = bound});
    EXPECT_TRUE(store.ok());
    return (*store)->capacity_bytes();
  };
  const size_t slot = world_.slot_bytes();
  EXPECT_EQ(capacity(0), slot);
  EXPECT_EQ(capacity(slot), slot);
  EXPECT_EQ(capacity(5 * slot - 1), 4 * slot);
  EXPECT_EQ(capacity(uint64_t{1} << 40), world_.table().num_experts_total() * slot);
}

// Routes as routers give them: a handful of experts, often the same ones, sometimes all.
std::vector<int32_t> random_ids(std::mt19937_64& random) {
  const uint64_t most = random() % 8 == 0 ? 64 : 8;
  std::vector<int32_t> ids(1 + random() % most);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % ExpertWorld::kExperts);
  return ids;
}

struct SoakTotals {
  int failed = 0;
  int complete = 0;
};

void soak(ExpertWorld& world, RoutingEncoder& encoder, std::mt19937_64& random, ExpertStore& store,
          int leases, SoakTotals& totals) {
  for (int i = 0; i < leases; ++i) {
    const auto layer = static_cast<int32_t>(random() % ExpertWorld::kLayers);
    const std::vector<int32_t> ids = random_ids(random);
    const bool cut_short = random() % 10 == 0;
    const int waves_max = cut_short ? static_cast<int>(random() % 3) : 1000;
    const Delivery delivery = deliver(world, store, encoder, layer, ids, waves_max);
    ASSERT_TRUE(delivery.bytes_right) << "lease " << i;
    const std::vector<int32_t> delivered = delivery.sorted();
    ASSERT_EQ(std::adjacent_find(delivered.begin(), delivered.end()), delivered.end());
    if (!delivery.status.ok()) {
      ASSERT_EQ(delivery.status.error().code(), ErrorCode::kIo);
      ++totals.failed;
    } else if (!cut_short) {
      const std::set<int32_t> wanted(ids.begin(), ids.end());
      ASSERT_TRUE(std::equal(delivered.begin(), delivered.end(), wanted.begin(), wanted.end()));
      ++totals.complete;
    }
  }
}

// Twelve experts chosen by each of four tokens: enough for the next layer to be read ahead.
std::vector<int32_t> every_expert_four_times() {
  std::vector<int32_t> ids;
  for (int token = 0; token < 4; ++token) {
    for (int32_t e = 0; e < ExpertWorld::kExperts; ++e) ids.push_back(e);
  }
  return ids;
}

TEST_F(StreamedExpertStoreTest, APromptReadsTheNextLayerAheadAndEachExpertOnce) {
  FaultyReader reader({.seed = 5, .delay_waits_max = 2});
  const auto store = world_.store(reader, 10, 4);
  for (int32_t layer = 0; layer < ExpertWorld::kLayers; ++layer) {
    const Delivery all =
        deliver(world_, *store, encoder_, layer, every_expert_four_times(), 1000, prompt_of(4));
    ASSERT_TRUE(all.status.ok());
    EXPECT_EQ(all.sorted(), first_experts(ExpertWorld::kExperts));
    EXPECT_TRUE(all.bytes_right);
  }
  const ExpertStats stats = store->stats();
  EXPECT_EQ(stats.hits, 0u);
  EXPECT_EQ(stats.misses, 36u);
  EXPECT_EQ(reader.reads_submitted(), 36u * kReadsPerExpert);
  EXPECT_GT(stats.prefetches, 0u);
  EXPECT_EQ(stats.prefetches_useful, stats.prefetches);
  EXPECT_EQ(stats.evictions, 0u);
}

// As many picks, of two thirds of the experts: the others would be read for nothing.
TEST_F(StreamedExpertStoreTest, APromptThatLeavesExpertsOutReadsNothingAhead) {
  FaultyReader reader({});
  const auto store = world_.store(reader, 20, 4);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 48; ++i) ids.push_back(i % 8);
  (void)deliver(world_, *store, encoder_, 0, ids, 1000, prompt_of(4));
  EXPECT_EQ(store->stats().misses, 8u);
  EXPECT_EQ(store->stats().prefetches, 0u);
}

TEST_F(StreamedExpertStoreTest, APromptLeavesWhatDecodeKeeps) {
  FaultyReader reader({});
  const auto store = world_.store(reader, 8, 3);
  for (int i = 0; i < 3; ++i) (void)take(*store, {1, 2, 3, 4, 5});
  for (int32_t layer = 0; layer < ExpertWorld::kLayers; ++layer) {
    (void)deliver(world_, *store, encoder_, layer, every_expert_four_times(), 1000, prompt_of(4));
  }
  const uint64_t misses = store->stats().misses;
  (void)take(*store, {1, 2, 3, 4, 5});
  EXPECT_EQ(store->stats().misses, misses);
}

TEST_F(StreamedExpertStoreTest, AFailedReadAheadIsReadAgainWhenAskedFor) {
  std::mt19937_64 random(44);
  int failed = 0;
  for (int round = 0; round < 300; ++round) {
    FaultyReader reader({.seed = random(),
                         .delay_waits_max = static_cast<int>(random() % 4),
                         .failure_probability = 0.01});
    const auto store = world_.store(reader, 4 + random() % 20, 1 + random() % 3);
    for (int32_t i = 0; i < 12; ++i) {
      const bool prompt = random() % 3 != 0;
      const Delivery got =
          deliver(world_, *store, encoder_, i % ExpertWorld::kLayers,
                  prompt ? every_expert_four_times() : std::vector<int32_t>{1, 5, 7},
                  random() % 5 == 0 ? 1 : 1000, prompt ? prompt_of(4) : kOneOfDecode);
      ASSERT_TRUE(got.bytes_right);
      failed += got.status.ok() ? 0 : 1;
    }
  }
  EXPECT_GT(failed, 100);
}

TEST_F(StreamedExpertStoreTest, SurvivesTwentyThousandLeasesWithFaults) {
  std::mt19937_64 random(42);
  SoakTotals totals;
  for (int round = 0; round < 100; ++round) {
    const bool threaded = round % 4 == 3;
    FaultyReader reader({.seed = random(),
                         .delay_waits_max = static_cast<int>(random() % 4),
                         .completions_per_wait_max = random() % 4,
                         .failure_probability = round % 3 == 0 ? 0.0 : 0.02,
                         .piece_bytes_max = threaded ? 0 : random() % 3 * 50},
                        threaded ? make_pread_reader(1 + round % 5) : nullptr);
    const auto store = world_.store(reader, 1 + random() % 40);
    soak(world_, encoder_, random, *store, 200, totals);
    ASSERT_FALSE(HasFatalFailure()) << "round " << round;
    EXPECT_EQ(reader.in_flight(), 0u);
  }
  EXPECT_GT(totals.failed, 500);
  EXPECT_GT(totals.complete, 10000);
}

TEST_F(StreamedExpertStoreTest, SurvivesTheThreadedReaderAlone) {
  std::mt19937_64 random(43);
  SoakTotals totals;
  for (int round = 0; round < 20; ++round) {
    const auto reader = make_pread_reader(1 + round % 8);
    const auto store = world_.store(*reader, 1 + random() % 40);
    soak(world_, encoder_, random, *store, 100, totals);
    ASSERT_FALSE(HasFatalFailure()) << "round " << round;
  }
  EXPECT_EQ(totals.failed, 0);
}

}  // namespace
}  // namespace moeflux
