#include "experts/cache/expert_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "backend/host_buffer.h"

namespace moeflux {
namespace {

using Slot = ExpertCache::Slot;

constexpr size_t kSlotBytes = 128;

ExpertKey key_of_1(int32_t expert) { return {LayerId{1}, ExpertId{expert}}; }

ExpertCache make_slots(size_t slots, size_t staging = 0, bool guard = false) {
  auto buffer = allocate_host_buffer(slots * kSlotBytes);
  EXPECT_TRUE(buffer.ok());
  return {std::move(buffer).value(),
          {.slot_bytes = kSlotBytes,
           .num_slots = slots,
           .shape = {.num_layers = 3, .num_experts = 40},
           .num_staging = staging,
           .guard_admission = guard}};
}

void note_uses(ExpertCache& cache, std::initializer_list<int32_t> experts) {
  cache.begin_visit(LayerId{1});
  for (const int32_t expert : experts) cache.note_use(key_of_1(expert));
}

/// Brings an expert in as the store does, and lets go of it.
Slot fill(ExpertCache& cache, int32_t expert) {
  const ExpertPin pin = cache.reserve(key_of_1(expert), Purpose::kDecode);
  EXPECT_TRUE(pin);
  cache.set_ready(pin.slot());
  return pin.slot();
}

TEST(ExpertCache, EvictsWhatIsUsedLeastAndOfEqualsTheOldest) {
  ExpertCache cache = make_slots(3);
  note_uses(cache, {0, 1, 2, 0});
  for (const int32_t expert : {0, 1, 2}) fill(cache, expert);
  fill(cache, 3);  // never used: the next to go
  EXPECT_FALSE(cache.find(key_of_1(1)).has_value());
  fill(cache, 4);
  EXPECT_FALSE(cache.find(key_of_1(3)).has_value());
  note_uses(cache, {4});
  fill(cache, 5);
  EXPECT_FALSE(cache.find(key_of_1(2)).has_value());
  for (const int32_t expert : {0, 4, 5})
    EXPECT_TRUE(cache.find(key_of_1(expert)).has_value()) << expert;
}

TEST(ExpertCache, OldUsesFade) {
  ExpertCache cache = make_slots(2);
  for (int i = 0; i < 5; ++i) note_uses(cache, {0});
  for (const int32_t expert : {0, 1}) fill(cache, expert);
  for (int i = 0; i < 30; ++i) note_uses(cache, {});
  note_uses(cache, {1});
  fill(cache, 2);
  EXPECT_FALSE(cache.find(key_of_1(0)).has_value());
}

TEST(ExpertCache, PromptRoutesRankExpertsBelowAnyUse) {
  ExpertCache cache = make_slots(3);
  const std::array<int32_t, 2> experts = {0, 1};
  const std::array<int32_t, 2> uses = {1, 9};
  cache.note_prefill(LayerId{1}, experts, uses, 100);
  for (const int32_t expert : {0, 1, 2}) fill(cache, expert);
  note_uses(cache, {2});
  fill(cache, 3);
  EXPECT_FALSE(cache.find(key_of_1(0)).has_value());
  fill(cache, 4);
  fill(cache, 5);
  EXPECT_TRUE(cache.find(key_of_1(1)).has_value());
  EXPECT_TRUE(cache.find(key_of_1(2)).has_value());
  EXPECT_EQ(cache.stats().uses[cache.shape().index_of(key_of_1(1))], 0u);
}

TEST(ExpertCache, GuardComputesFromStagingWhatIsWorthLess) {
  ExpertCache cache = make_slots(3, 1, true);
  note_uses(cache, {0, 1});
  const Slot first = fill(cache, 0);
  const Slot second = fill(cache, 1);
  ExpertPin transient = cache.reserve(key_of_1(2), Purpose::kDecode);
  ASSERT_TRUE(transient);
  EXPECT_EQ(cache.admission_of(transient.slot()), Admission::kTransient);
  cache.set_ready(transient.slot());
  EXPECT_EQ(cache.find(key_of_1(2)), transient.slot());
  transient.release();
  EXPECT_FALSE(cache.find(key_of_1(2)).has_value());
  EXPECT_EQ(cache.stats().evictions, 0u);
  EXPECT_EQ(cache.stats().bypasses, 1u);

  note_uses(cache, {3});
  const Slot admitted = fill(cache, 3);  // worth more than the others now
  EXPECT_EQ(cache.find(key_of_1(3)), admitted);
  EXPECT_TRUE(admitted == first || admitted == second);
  // With the staging slot taken there is no choice.
  const ExpertPin staged = cache.reserve(key_of_1(4), Purpose::kDecode);
  EXPECT_TRUE(cache.reserve(key_of_1(5), Purpose::kDecode));
  EXPECT_EQ(cache.stats().evictions, 2u);
}

TEST(ExpertCache, GuessesTakeFreeSlotsOnly) {
  ExpertCache cache = make_slots(2);
  fill(cache, 0);
  ExpertPin guess = cache.reserve(key_of_1(1), Purpose::kReadAhead);
  ASSERT_TRUE(guess);
  EXPECT_FALSE(cache.reserve(key_of_1(2), Purpose::kReadAhead));
  cache.set_ready(guess.slot());
  guess.release();
  EXPECT_FALSE(cache.reserve(key_of_1(2), Purpose::kReadAhead));
  fill(cache, 3);  // a demand takes the guess's slot before it evicts
  EXPECT_TRUE(cache.find(key_of_1(0)).has_value());
  EXPECT_FALSE(cache.find(key_of_1(1)).has_value());
  EXPECT_EQ(cache.stats().evictions, 0u);
}

TEST(ExpertCache, GuessThatCameTrueStays) {
  ExpertCache cache = make_slots(2);
  const Slot guess = [&] {
    const ExpertPin pin = cache.reserve(key_of_1(1), Purpose::kReadAhead);
    cache.set_ready(pin.slot());
    return pin.slot();
  }();
  cache.promote(guess, Purpose::kDecode);
  note_uses(cache, {1});
  fill(cache, 2);
  fill(cache, 3);
  EXPECT_EQ(cache.find(key_of_1(1)), guess);
}

TEST(ExpertCache, APromptTakesAGuesssSlotAndNobodyElses) {
  ExpertCache cache = make_slots(2);
  fill(cache, 0);
  ExpertPin guess = cache.reserve(key_of_1(1), Purpose::kReadAhead);
  cache.set_ready(guess.slot());
  EXPECT_FALSE(cache.reserve(key_of_1(2), Purpose::kPrompt));  // the guess is pinned
  guess.release();
  EXPECT_TRUE(cache.reserve(key_of_1(2), Purpose::kPrompt));
  EXPECT_FALSE(cache.find(key_of_1(1)).has_value());
  EXPECT_TRUE(cache.find(key_of_1(0)).has_value());
}

TEST(ExpertCache, AGuessThatCameTrueLeavesRoomForAnother) {
  ExpertCache cache = make_slots(6, 1);
  const ExpertPin first = cache.reserve(key_of_1(1), Purpose::kGuess);
  ASSERT_TRUE(first);
  cache.set_ready(first.slot());
  EXPECT_FALSE(cache.reserve(key_of_1(2), Purpose::kGuess));
  cache.promote(first.slot(), Purpose::kDecode);
  EXPECT_TRUE(cache.reserve(key_of_1(2), Purpose::kGuess));
}

TEST(ExpertCache, OfThoseThatPromptsChoseAlikeTheOneChosenFirstLeaves) {
  ExpertCache cache = make_slots(2);
  const std::array<int32_t, 1> uses = {1};
  cache.note_prefill(LayerId{1}, std::array<int32_t, 1>{2}, uses, 10);
  cache.note_prefill(LayerId{1}, std::array<int32_t, 1>{0}, uses, 10);
  fill(cache, 0);
  fill(cache, 2);
  fill(cache, 3);
  EXPECT_TRUE(cache.find(key_of_1(0)).has_value());
  EXPECT_FALSE(cache.find(key_of_1(2)).has_value());
}

TEST(ExpertCache, ShrinksByItsGuessesFirst) {
  ExpertCache cache = make_slots(4);
  for (const int32_t expert : {0, 1}) fill(cache, expert);
  for (const int32_t expert : {2, 3}) {
    const ExpertPin guess = cache.reserve(key_of_1(expert), Purpose::kReadAhead);
    cache.set_ready(guess.slot());
  }
  EXPECT_EQ(cache.shrink_to(2), 2u);
  for (const int32_t expert : {0, 1})
    EXPECT_TRUE(cache.find(key_of_1(expert)).has_value()) << expert;
  EXPECT_EQ(cache.stats().evictions, 0u);
}

TEST(ExpertCache, AnExpertOnItsWayIsSeenByLookupAlone) {
  ExpertCache cache = make_slots(1);
  const ExpertPin pin = cache.reserve(key_of_1(0), Purpose::kDecode);
  EXPECT_EQ(cache.lookup(key_of_1(0))->state, SlotState::kLoading);
  EXPECT_FALSE(cache.find(key_of_1(0)).has_value());
  cache.set_ready(pin.slot());
  EXPECT_EQ(cache.find(key_of_1(0)), pin.slot());
}

TEST(ExpertCache, ShrinksToWhatIsPinnedAndFurtherWithTheLastPin) {
  ExpertCache cache = make_slots(6);
  note_uses(cache, {0, 1, 2, 3, 4, 5, 4, 5});
  for (int32_t expert = 0; expert < 6; ++expert) fill(cache, expert);
  std::vector<ExpertPin> pins;
  for (const int32_t expert : {0, 1, 2})
    pins.push_back(ExpertPin(cache, *cache.find(key_of_1(expert))));
  EXPECT_EQ(cache.shrink_to(2), 3u);
  EXPECT_FALSE(cache.reserve(key_of_1(7), Purpose::kDecode));
  pins.clear();
  EXPECT_EQ(cache.num_resident(), 2u);
  fill(cache, 8);
  EXPECT_EQ(cache.num_resident(), 2u);
  EXPECT_EQ(cache.shrink_to(6), 2u);
  fill(cache, 9);
  EXPECT_EQ(cache.num_resident(), 3u);
}

TEST(ExpertCache, CompactMovesWhatIsKeptIntoTheFirstSlots) {
  ExpertCache cache = make_slots(6);
  note_uses(cache, {0, 1, 2, 3, 4, 5, 4, 5, 5});
  for (int32_t expert = 0; expert < 6; ++expert) {
    const size_t at = cache.offset_of(fill(cache, expert));
    std::memset(cache.buffer().host_data() + at, expert, kSlotBytes);
  }
  cache.shrink_to(2);
  EXPECT_EQ(cache.compact(), 2u);
  EXPECT_EQ(cache.capacity_bytes(), 2 * kSlotBytes);
  for (const int32_t expert : {4, 5}) {  // used most, in the last slots
    const std::optional<Slot> slot = cache.find(key_of_1(expert));
    ASSERT_TRUE(slot.has_value());
    EXPECT_LT(static_cast<size_t>(*slot), 2u);
    const std::byte* bytes = cache.buffer().host_data() + cache.offset_of(*slot);
    EXPECT_EQ(std::count(bytes, bytes + kSlotBytes, static_cast<std::byte>(expert)),
              static_cast<std::ptrdiff_t>(kSlotBytes));
  }
  // Slots beyond the limit stay empty, and the policy's order is what it was.
  for (int32_t expert = 6; expert < 12; ++expert) {
    EXPECT_LT(static_cast<size_t>(fill(cache, expert)), 2u);
  }
  EXPECT_FALSE(cache.find(key_of_1(4)).has_value());
  EXPECT_TRUE(cache.find(key_of_1(5)).has_value());
}

TEST(ExpertCache, CompactKeepsAllSlotsWhileOneBeyondTheLimitIsPinned) {
  ExpertCache cache = make_slots(4);
  for (int32_t expert = 0; expert < 4; ++expert) fill(cache, expert);
  const Slot last = *cache.find(key_of_1(3));
  ASSERT_EQ(static_cast<size_t>(last), 3u);
  ExpertPin pin(cache, last);
  cache.shrink_to(2);
  EXPECT_EQ(cache.compact(), 4u);
  EXPECT_EQ(cache.find(key_of_1(3)), last);
  pin.release();
  EXPECT_EQ(cache.compact(), 2u);
}

TEST(ExpertCache, WhatIsLetGoStaysUntilItsLastPin) {
  ExpertCache cache = make_slots(2);
  const Slot slot = fill(cache, 5);
  ExpertPin mover(cache, slot);
  ExpertPin reader(cache, slot);
  cache.let_go(slot);
  mover.release();
  EXPECT_TRUE(cache.find(key_of_1(5)).has_value());
  reader.release();
  EXPECT_FALSE(cache.find(key_of_1(5)).has_value());
  EXPECT_TRUE(cache.is_free(slot));
  // Neither its room nor its count is lost.
  for (const int32_t expert : {1, 2}) fill(cache, expert);
  EXPECT_EQ(cache.num_resident(), 2u);
  EXPECT_EQ(cache.stats().evictions, 0u);
}

TEST(ExpertCache, FreeSlotsAreTakenBeforeAnythingIsEvicted) {
  ExpertCache cache = make_slots(4);
  std::set<Slot> slots;
  for (const int32_t expert : {0, 1, 2, 3}) slots.insert(fill(cache, expert));
  EXPECT_EQ(slots.size(), 4u);
  EXPECT_EQ(cache.stats().evictions, 0u);
  fill(cache, 4);
  EXPECT_EQ(cache.stats().evictions, 1u);
  EXPECT_EQ(cache.num_resident(), 4u);
}

TEST(ExpertCache, PinnedExpertSurvivesAFullCache) {
  ExpertCache cache = make_slots(2);
  const Slot pinned = fill(cache, 0);
  ExpertPin first(cache, pinned);
  ExpertPin second(cache, pinned);  // pins nest
  for (int32_t expert = 1; expert < 10; ++expert) EXPECT_NE(fill(cache, expert), pinned);
  EXPECT_EQ(cache.find(key_of_1(0)), pinned);
  first.release();
  for (int32_t expert = 10; expert < 20; ++expert) EXPECT_NE(fill(cache, expert), pinned);
  second.release();
  fill(cache, 20);
  fill(cache, 21);
  EXPECT_FALSE(cache.find(key_of_1(0)).has_value());
}

TEST(ExpertCache, ReserveSaysSoWhenAllArePinned) {
  ExpertCache cache = make_slots(2);
  const ExpertPin loading = cache.reserve(key_of_1(0), Purpose::kDecode);
  const Slot ready = fill(cache, 1);
  ExpertPin pin(cache, ready);
  EXPECT_FALSE(cache.reserve(key_of_1(2), Purpose::kDecode));
  pin.release();
  EXPECT_EQ(cache.reserve(key_of_1(2), Purpose::kDecode).slot(), ready);
  EXPECT_TRUE(loading);
}

TEST(ExpertCache, TheLastPinOfALoadingSlotLeavesTheExpertAbsent) {
  ExpertCache cache = make_slots(2);
  const Slot kept = fill(cache, 0);
  ExpertPin reading = cache.reserve(key_of_1(1), Purpose::kDecode);
  const Slot failed = reading.slot();
  ExpertPin waiting(cache, failed);
  reading.release();
  EXPECT_EQ(cache.lookup(key_of_1(1))->state, SlotState::kLoading);
  waiting.release();
  EXPECT_EQ(cache.num_resident(), 1u);
  EXPECT_FALSE(cache.lookup(key_of_1(1)).has_value());
  // The freed slot comes before any eviction, and the expert can be tried again.
  EXPECT_EQ(cache.reserve(key_of_1(1), Purpose::kDecode).slot(), failed);
  EXPECT_EQ(cache.stats().evictions, 0u);
  EXPECT_EQ(cache.find(key_of_1(0)), kept);
}

TEST(ExpertCache, KeysOfDifferentLayersAreDifferentExperts) {
  ExpertCache cache = make_slots(2);
  fill(cache, 0);
  EXPECT_FALSE(cache.find({LayerId{2}, ExpertId{0}}).has_value());
  EXPECT_FALSE(cache.find({LayerId{0}, ExpertId{1}}).has_value());
}

TEST(ExpertCache, SlotsAreDisjointAndInsideTheBuffer) {
  ExpertCache cache = make_slots(5);
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

TEST(ExpertPin, MovesAndEndsWithItsHolder) {
  ExpertCache cache = make_slots(1);
  const Slot slot = fill(cache, 0);
  ExpertPin moved;
  {
    ExpertPin pin(cache, slot);
    moved = std::move(pin);
    EXPECT_FALSE(pin);  // NOLINT(bugprone-note_uses-after-move): the fact under test
  }
  EXPECT_FALSE(cache.reserve(key_of_1(1), Purpose::kDecode));
  moved = ExpertPin();  // assigning lets go of what was held
  EXPECT_EQ(cache.reserve(key_of_1(1), Purpose::kDecode).slot(), slot);
  moved.release();  // holds nothing: no effect
}

TEST(ExpertCacheDeathTest, MisuseAborts) {
  ExpertCache cache = make_slots(1);
  const Slot slot = fill(cache, 0);
  EXPECT_DEATH((void)cache.reserve(key_of_1(0), Purpose::kDecode), "lookup");
  EXPECT_DEATH(cache.promote(slot, Purpose::kGuess), "purpose");
  EXPECT_DEATH(cache.set_ready(slot), "kLoading");
}

}  // namespace
}  // namespace moeflux
