#include "experts/tiers/expert_ring.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "experts/copying_encoder_test_util.h"

namespace moeflux {
namespace {

using Sources = std::vector<ExpertRing::Source>;

constexpr size_t kWave = 2;
constexpr size_t kWaves = 3;

/// A ring over a table of three layers with twelve experts each.
struct World {
  explicit World(size_t wave = kWave, size_t waves = kWaves)
      : far(table()),
        ring(table(), zeroed_buffer(wave * waves * far.slot_bytes()), far.slot_bytes(), wave,
             waves) {}
  const ExpertTable& table() const { return experts.table(); }

  Sources sources(int32_t layer, std::initializer_list<int32_t> of_layer) {
    Sources listed;
    for (const int32_t e : of_layer) {
      const ExpertKey key{LayerId{layer}, ExpertId{e}};
      listed.push_back({key, &far.buffer(), far.offset_of(key)});
    }
    return listed;
  }
  /// The next wave of the layer, read by a launch; its experts are what they say they are.
  std::vector<int32_t> next(int32_t layer) {
    std::vector<int32_t> ids;
    for (const ExpertWeights& expert : ring.next(encoder, LayerId{layer})) {
      const ExpertKey key{LayerId{layer}, expert.expert};
      const uint64_t begin = slot_begin(table(), key.layer, expert);
      EXPECT_EQ(expert.down.parts.codes.buffer, &ring.memory());
      encoder.launch(ring.memory(), begin, table().layer(key.layer).slot_bytes);
      EXPECT_TRUE(far.is_at(key, ring.memory(), begin)) << layer << "/" << index(key.expert);
      ids.push_back(index(key.expert));
      slots.push_back(begin / far.slot_bytes());
      EXPECT_EQ(begin % far.slot_bytes(), 0u);
    }
    return ids;
  }

  ExpertWorld experts;
  FarExperts far;
  CopyingEncoder encoder;
  ExpertRing ring;
  std::vector<uint64_t> slots;  // of the experts given
};

Sources operator+(Sources a, const Sources& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

using Ids = std::vector<int32_t>;

TEST(ExpertRing, GivesALayersExpertsInWavesThatCrossNoLayer) {
  World w;
  w.ring.begin(w.encoder, w.sources(0, {7, 1, 4}) + w.sources(1, {0}) + w.sources(2, {3, 2}));
  EXPECT_EQ(w.next(0), (Ids{7, 1}));
  EXPECT_EQ(w.next(0), (Ids{4}));
  EXPECT_EQ(w.next(0), Ids{});
  EXPECT_EQ(w.next(0), Ids{});  // once more is nothing
  EXPECT_EQ(w.next(1), (Ids{0}));
  EXPECT_EQ(w.next(1), Ids{});
  EXPECT_EQ(w.next(2), (Ids{3, 2}));
  EXPECT_EQ(w.next(2), Ids{});
  // Each wave has slots of its own until all have been used.
  EXPECT_EQ(w.slots, (std::vector<uint64_t>{0, 1, 2, 4, 0, 1}));
}

TEST(ExpertRing, ALayerWithoutExpertsTakesNothingFromTheNext) {
  World w;
  w.ring.begin(w.encoder, w.sources(0, {7}) + w.sources(2, {3}));
  EXPECT_EQ(w.next(0), Ids{7});
  EXPECT_EQ(w.next(1), Ids{});
  EXPECT_EQ(w.next(2), Ids{3});
}

TEST(ExpertRing, CopiesAreAsManyWavesAheadAsThereArePlaces) {
  World w;
  w.ring.begin(w.encoder, w.sources(0, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(w.encoder.asked.size(), kWaves);
  EXPECT_EQ(w.encoder.awaited(), 0u);
  w.next(0);
  EXPECT_EQ(w.encoder.asked.size(), kWaves);  // the first wave is read now
  EXPECT_EQ(w.encoder.awaited(), 1u);
  w.next(0);
  EXPECT_EQ(w.encoder.asked.size(), kWaves + 1);
  EXPECT_EQ(w.encoder.awaited(), 2u);
  for (int i = 0; i < 4; ++i) w.next(0);
  EXPECT_EQ(w.encoder.asked.size(), 5u);
  for (const auto& asked : w.encoder.asked) EXPECT_EQ(asked.copies.size(), kWave);
}

TEST(ExpertRing, CopiesWhatALayersExpertsHaveAndCountsIt) {
  World w;
  w.ring.begin(w.encoder, w.sources(0, {5}) + w.sources(2, {6}));
  ASSERT_EQ(w.encoder.asked.size(), 2u);
  const uint64_t small = w.table().layer(LayerId{0}).slot_bytes;
  const uint64_t large = w.table().layer(LayerId{2}).slot_bytes;
  ASSERT_LT(small, large);
  EXPECT_EQ(w.encoder.asked[0].copies[0].bytes, small);
  EXPECT_EQ(w.encoder.asked[1].copies[0].bytes, large);
  EXPECT_EQ(w.encoder.asked[1].copies[0].from_offset, w.far.offset_of({LayerId{2}, ExpertId{6}}));
  EXPECT_EQ(w.ring.bytes_copied(), small + large);
}

TEST(ExpertRing, AStepThatGoesThroughNothingIsOver) {
  World w;
  w.ring.begin(w.encoder, {});
  EXPECT_TRUE(w.ring.is_settled());
  EXPECT_EQ(w.next(0), Ids{});
  w.ring.settle(w.encoder);
  EXPECT_TRUE(w.encoder.asked.empty());
}

// The next writer to the memory may not meet a copy that is still under way.
TEST(ExpertRing, AStepMayEndAnywhereAndItsCopiesAreWaitedFor) {
  for (int taken = 0; taken <= 5; ++taken) {
    World w;
    w.ring.begin(w.encoder, w.sources(0, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
    EXPECT_FALSE(w.ring.is_settled());
    for (int i = 0; i < taken; ++i) w.next(0);
    w.ring.settle(w.encoder);
    EXPECT_TRUE(w.ring.is_settled());
    EXPECT_EQ(w.encoder.awaited(), w.encoder.asked.size()) << taken;
    w.encoder.launch(w.ring.memory(), 0, w.ring.memory().size_bytes());
    w.ring.begin(w.encoder, w.sources(1, {8, 9}));
    EXPECT_EQ(w.next(1), (Ids{8, 9})) << taken;
  }
}

TEST(ExpertRing, AnyStepsOfAnyRingKeepToTheOrderOfReadsAndCopies) {
  std::mt19937 random(5);
  for (int round = 0; round < 25; ++round) {
    World w(1 + random() % 4, 1 + random() % 4);
    for (int step = 0; step < 4; ++step) {
      Sources all;
      std::vector<Ids> wanted(3);
      for (int32_t layer = 0; layer < 3; ++layer) {
        for (int32_t e = 0; e < ExpertWorld::kExperts; ++e) {
          if (random() % 3 == 0) continue;
          all = all + w.sources(layer, {e});
          wanted[static_cast<size_t>(layer)].push_back(e);
        }
      }
      w.ring.begin(w.encoder, all);
      const bool is_cut = random() % 3 == 0;
      for (int32_t layer = 0; layer < (is_cut ? 2 : 3); ++layer) {
        Ids got;
        for (Ids wave = w.next(layer); !wave.empty(); wave = w.next(layer)) {
          EXPECT_LE(wave.size(), w.ring.wave());
          got.insert(got.end(), wave.begin(), wave.end());
        }
        EXPECT_EQ(got, wanted[static_cast<size_t>(layer)]);
      }
      w.ring.settle(w.encoder);
    }
    if (HasFailure()) return;
  }
}

TEST(ExpertRingDeathTest, ItsMemoryHasRoomForItsWavesAndOneStepIsSettledBeforeTheNext) {
  const ExpertWorld experts;
  const size_t slot = experts.slot_bytes();
  EXPECT_DEATH(ExpertRing(experts.table(), zeroed_buffer(6 * slot - 1), slot, 2, 3), "size_bytes");
  EXPECT_DEATH(ExpertRing(experts.table(), zeroed_buffer(slot), slot, 0, 3), "wave > 0");
  World w;
  w.ring.begin(w.encoder, w.sources(0, {1}));
  EXPECT_DEATH(w.ring.begin(w.encoder, w.sources(0, {1})), "is_settled");
}

}  // namespace
}  // namespace moeflux
