#include "experts/tiers/near_before_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "experts/copying_encoder_test_util.h"

namespace moeflux {
namespace {

using Ids = std::vector<int32_t>;

constexpr size_t kCacheSlots = 24;  // three moves at once

ExpertKey layer_1_key(int32_t expert) { return {LayerId{1}, ExpertId{expert}}; }

/// A cache that holds experts of layer 1, and slots near before it.
struct BeforeWorld {
  explicit BeforeWorld(size_t near_slots, size_t staging = 0)
      : far(table()),
        cache(zeroed_buffer(kCacheSlots * far.slot_bytes()), {.slot_bytes = far.slot_bytes(),
                                                              .num_slots = kCacheSlots,
                                                              .shape = shape_of(table()),
                                                              .num_staging = staging}),
        near(NearSlots(table(), {zeroed_buffer(near_slots * far.slot_bytes()), near_slots},
                       far.slot_bytes(), {}),
             cache) {}
  const ExpertTable& table() const { return experts.table(); }

  /// Brings an expert into the cache as a store does.
  void fill(int32_t expert, Purpose purpose = Purpose::kDecode) {
    const ExpertPin pin = cache.reserve(layer_1_key(expert), purpose);
    ASSERT_TRUE(pin);
    std::memcpy(cache.buffer().host_data() + cache.offset_of(pin.slot()),
                far.buffer().host_data() + far.offset_of(layer_1_key(expert)), far.slot_bytes());
    cache.set_ready(pin.slot());
  }
  /// A step of one token; `chosen` of layer 1. Returns the near ones of them.
  Ids step(const Ids& chosen, bool helped = false) {
    const StepRows rows{.rows = 1, .phase = StepPhase::kDecode};
    near.begin_step(std::span(&rows, 1), encoder);
    const LayerRoutes routes{
        .layer = LayerId{1}, .phase = StepPhase::kDecode, .tokens = 1, .ids = chosen};
    std::vector<ExpertWeights> found;
    near.visit(std::span(&routes, 1), chosen, helped, found);
    Ids ids;
    for (const ExpertWeights& expert : found) {
      ids.push_back(index(expert.expert));
      const Buffer& buffer = *expert.gate.parts.codes.buffer;
      EXPECT_NE(&buffer, &cache.buffer());
      EXPECT_TRUE(
          far.is_at(layer_1_key(ids.back()), buffer, slot_begin(table(), LayerId{1}, expert)));
    }
    return ids;
  }
  /// All copies that were asked for have ended.
  void arrive() { encoder.finish(encoder.asked.size()); }
  ExpertStats stats() const {
    ExpertStats stats;
    near.add_to(stats);
    return stats;
  }

  ExpertWorld experts;
  FarExperts far;
  CopyingEncoder encoder;
  ExpertCache cache;
  NearBeforeCache near;
};

TEST(NearBeforeCache, AnExpertThatIsUsedGoesNearAndLeavesTheCacheOnceItIsThere) {
  BeforeWorld w(2);
  w.fill(5);
  EXPECT_EQ(w.step({5}), Ids{});
  EXPECT_EQ(w.step({5}), Ids{});  // on its way from now on
  ASSERT_EQ(w.encoder.asked.size(), 1u);
  EXPECT_TRUE(w.cache.find(layer_1_key(5)).has_value());
  EXPECT_FALSE(w.near.holds(layer_1_key(5)));
  w.arrive();
  EXPECT_FALSE(w.near.holds(layer_1_key(5)));  // a step has to look
  EXPECT_EQ(w.step({5, 6}), Ids{5});
  EXPECT_TRUE(w.near.holds(layer_1_key(5)));
  EXPECT_FALSE(w.cache.find(layer_1_key(5)).has_value());
  EXPECT_EQ(w.cache.num_resident(), 0u);
  EXPECT_EQ(w.stats().near_hits, 1u);
  EXPECT_EQ(w.stats().far_hits, 3u);
  EXPECT_EQ(w.stats().promotions, 1u);
}

// Its bytes are copied from the slot: nobody else may have that before.
TEST(NearBeforeCache, TheCacheKeepsWhoIsOnItsWay) {
  BeforeWorld w(1);
  for (int32_t e = 0; e < 12; ++e) w.fill(e);
  w.step({5});
  w.step({});
  ASSERT_EQ(w.encoder.asked.size(), 1u);
  w.cache.shrink_to(1);
  w.cache.shrink_to(kCacheSlots);
  EXPECT_TRUE(w.cache.find(layer_1_key(5)).has_value());
  EXPECT_EQ(w.cache.num_resident(), 1u);
  w.arrive();
  EXPECT_EQ(w.step({5}), Ids{5});
  EXPECT_EQ(w.cache.num_resident(), 0u);
}

TEST(NearBeforeCache, AnEighthOfTheCachesSlotsIsOnItsWayAtMost) {
  BeforeWorld w(10);
  for (int32_t e = 0; e < 10; ++e) w.fill(e);
  w.step({0, 1, 2, 3, 4});
  w.step({5, 6});
  ASSERT_EQ(w.encoder.asked.size(), 1u);
  EXPECT_EQ(w.encoder.asked[0].copies.size(), 3u);
  w.step({5, 6});
  EXPECT_EQ(w.encoder.asked.size(), 1u);  // none has arrived
  w.arrive();
  w.step({});
  ASSERT_EQ(w.encoder.asked.size(), 2u);
  EXPECT_EQ(w.encoder.asked[1].copies.size(), 2u);  // 5 and 6
  // A cache that has shrunk has fewer to give away.
  w.arrive();
  w.step({3, 4});
  w.cache.shrink_to(15);
  w.step({});
  ASSERT_EQ(w.encoder.asked.size(), 3u);
  EXPECT_EQ(w.encoder.asked[2].copies.size(), 1u);
}

TEST(NearBeforeCache, OnlyWhoTheCacheKeepsMayLeaveForIt) {
  BeforeWorld w(8, 2);
  w.fill(1);
  w.fill(2, Purpose::kGuess);
  const ExpertPin loading = w.cache.reserve(layer_1_key(3), Purpose::kDecode);
  ASSERT_TRUE(loading);
  EXPECT_TRUE(may_leave_for_near(w.cache, layer_1_key(1)));
  EXPECT_FALSE(may_leave_for_near(w.cache, layer_1_key(2)));  // a guess
  EXPECT_FALSE(may_leave_for_near(w.cache, layer_1_key(3)));  // not there
  EXPECT_FALSE(may_leave_for_near(w.cache, layer_1_key(4)));  // nowhere
  w.step({1, 2, 3, 4});
  w.step({});
  ASSERT_EQ(w.encoder.asked.size(), 1u);
  EXPECT_EQ(w.encoder.asked[0].copies.size(), 1u);
  EXPECT_EQ(w.encoder.asked[0].copies[0].from_offset,
            w.cache.offset_of(*w.cache.find(layer_1_key(1))));
}

TEST(NearBeforeCache, WhoLeavesTheNearSlotsIsNowhere) {
  BeforeWorld w(1);
  w.fill(1);
  w.step({1});
  w.step({});
  w.arrive();
  EXPECT_EQ(w.step({1}), Ids{1});
  w.fill(2);
  for (int i = 0; i < 8; ++i) w.step({2});
  EXPECT_EQ(w.encoder.asked.size(), 2u);
  EXPECT_FALSE(w.near.holds(layer_1_key(1)));
  EXPECT_FALSE(w.cache.find(layer_1_key(1)).has_value());
  w.arrive();
  EXPECT_EQ(w.step({1, 2}), Ids{2});
}

TEST(NearBeforeCache, NearOnesAreListedOnceInAscendingOrder) {
  BeforeWorld w(3);
  for (const int32_t e : {3, 7, 9}) w.fill(e);
  w.step({9, 3, 7});
  w.step({});
  w.arrive();
  EXPECT_EQ(w.step({9, 9, 4, 3, 7, 3}), (Ids{3, 7, 9}));
}

TEST(NearBeforeCache, WhoIsOnItsWayCountsAmongThoseWhoMay) {
  BeforeWorld w(10);
  for (int32_t e = 0; e < 10; ++e) w.fill(e);
  w.step({0});
  w.step({1, 2, 3, 4});
  ASSERT_EQ(w.encoder.asked.size(), 1u);
  w.step({});
  ASSERT_EQ(w.encoder.asked.size(), 2u);
  EXPECT_EQ(w.encoder.asked[1].copies.size(), 2u);
}

TEST(NearBeforeCache, UsesFadeWithTheTokensOfDecode) {
  BeforeWorld w(1);
  w.fill(1);
  for (int i = 0; i < 6; ++i) w.step({1});
  w.arrive();
  EXPECT_EQ(w.step({1}), Ids{1});
  w.fill(2);
  for (int i = 0; i < 120; ++i) w.step({});
  w.step({2});
  w.step({});  // one use, where seven were 120 tokens ago
  EXPECT_EQ(w.encoder.asked.size(), 2u);
}

}  // namespace
}  // namespace moeflux
