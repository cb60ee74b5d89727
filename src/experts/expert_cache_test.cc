#include "experts/expert_cache.h"

#include <gtest/gtest.h>

#include <set>

#include "backend/host_buffer.h"

namespace moeflux {
namespace {

using Slot = ExpertCache::Slot;

constexpr size_t kSlotBytes = 128;

ExpertKey key(int32_t expert) { return {LayerId{1}, ExpertId{expert}}; }

ExpertCache make_cache(size_t slots) {
  auto buffer = allocate_host_buffer(slots * kSlotBytes);
  EXPECT_TRUE(buffer.ok());
  return {std::move(buffer).value(), {.slot_bytes = kSlotBytes, .num_slots = slots}};
}

/// Brings an expert in as the store does, and lets go of it.
Slot fill(ExpertCache& cache, int32_t expert) {
  const std::optional<Slot> slot = cache.reserve(key(expert));
  EXPECT_TRUE(slot.has_value());
  cache.set_ready(*slot);
  cache.unpin(*slot);
  return *slot;
}

TEST(ExpertCache, EvictsTheLeastRecentlyUsed) {
  ExpertCache cache = make_cache(3);
  for (const int32_t expert : {0, 1, 2}) fill(cache, expert);
  EXPECT_TRUE(cache.find(key(0)).has_value());  // now 1 is the oldest
  fill(cache, 3);
  EXPECT_FALSE(cache.find(key(1)).has_value());
  fill(cache, 4);
  EXPECT_FALSE(cache.find(key(2)).has_value());
  for (const int32_t expert : {0, 3, 4}) EXPECT_TRUE(cache.find(key(expert)).has_value()) << expert;
}

TEST(ExpertCache, FreeSlotsAreTakenBeforeAnythingIsEvicted) {
  ExpertCache cache = make_cache(4);
  std::set<Slot> slots;
  for (const int32_t expert : {0, 1, 2, 3}) slots.insert(fill(cache, expert));
  EXPECT_EQ(slots.size(), 4u);
  EXPECT_EQ(cache.evictions(), 0u);
  fill(cache, 4);
  EXPECT_EQ(cache.evictions(), 1u);
  EXPECT_EQ(cache.num_resident(), 4u);
}

TEST(ExpertCache, PinnedExpertSurvivesAFullCache) {
  ExpertCache cache = make_cache(2);
  const Slot pinned = fill(cache, 0);
  cache.pin(pinned);
  cache.pin(pinned);  // pins nest
  for (int32_t expert = 1; expert < 10; ++expert) EXPECT_NE(fill(cache, expert), pinned);
  EXPECT_EQ(cache.find(key(0)), pinned);
  cache.unpin(pinned);
  for (int32_t expert = 10; expert < 20; ++expert) EXPECT_NE(fill(cache, expert), pinned);
  cache.unpin(pinned);
  fill(cache, 20);
  fill(cache, 21);
  EXPECT_FALSE(cache.find(key(0)).has_value());
}

TEST(ExpertCache, ReserveSaysSoWhenAllArePinned) {
  ExpertCache cache = make_cache(2);
  const std::optional<Slot> loading = cache.reserve(key(0));
  const Slot ready = fill(cache, 1);
  cache.pin(ready);
  EXPECT_FALSE(cache.reserve(key(2)).has_value());
  cache.unpin(ready);
  EXPECT_EQ(cache.reserve(key(2)), ready);
  EXPECT_TRUE(loading.has_value());
}

TEST(ExpertCache, LoadingExpertIsNotFound) {
  ExpertCache cache = make_cache(1);
  const Slot slot = *cache.reserve(key(0));
  EXPECT_FALSE(cache.find(key(0)).has_value());
  cache.set_ready(slot);
  EXPECT_EQ(cache.find(key(0)), slot);
}

TEST(ExpertCache, AbandonFreesTheSlotAndForgetsTheExpert) {
  ExpertCache cache = make_cache(2);
  const Slot kept = fill(cache, 0);
  const Slot failed = *cache.reserve(key(1));
  cache.abandon(failed);
  EXPECT_EQ(cache.num_resident(), 1u);
  EXPECT_FALSE(cache.find(key(1)).has_value());
  // The freed slot comes before any eviction, and the expert can be tried again.
  EXPECT_EQ(cache.reserve(key(1)), failed);
  EXPECT_EQ(cache.evictions(), 0u);
  EXPECT_EQ(cache.find(key(0)), kept);
}

TEST(ExpertCache, KeysOfDifferentLayersAreDifferentExperts) {
  ExpertCache cache = make_cache(2);
  fill(cache, 0);
  EXPECT_FALSE(cache.find({LayerId{2}, ExpertId{0}}).has_value());
  EXPECT_FALSE(cache.find({LayerId{0}, ExpertId{1}}).has_value());
}

TEST(ExpertCache, SlotsAreDisjointAndInsideTheBuffer) {
  ExpertCache cache = make_cache(5);
  EXPECT_EQ(cache.capacity_bytes(), 5 * kSlotBytes);
  std::set<size_t> offsets;
  for (int32_t expert = 0; expert < 5; ++expert) {
    const size_t offset = cache.offset_of(fill(cache, expert));
    EXPECT_EQ(offset % kSlotBytes, 0u);
    EXPECT_LE(offset + kSlotBytes, cache.buffer().size_bytes());
    offsets.insert(offset);
  }
  EXPECT_EQ(offsets.size(), 5u);
}

TEST(ExpertCacheDeathTest, MisuseAborts) {
  ExpertCache cache = make_cache(1);
  const Slot slot = fill(cache, 0);
  EXPECT_DEATH(cache.unpin(slot), "pins > 0");
  EXPECT_DEATH((void)cache.reserve(key(0)), "contains");
  EXPECT_DEATH(cache.set_ready(slot), "kLoading");
}

}  // namespace
}  // namespace moeflux
