#include "experts/cache/layer_visit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace moeflux {
namespace {

using Ids = std::vector<int32_t>;
using Entry = LayerVisit::Entry;

constexpr LayerId kLayer{1};

ExpertCache make_cache(size_t slots, size_t staging = 0) {
  return {
      nullptr,
      {.num_slots = slots, .shape = {.num_layers = 2, .num_experts = 20}, .num_staging = staging}};
}

Ids ids_of(std::span<const Entry> entries) {
  Ids ids;
  for (const Entry& entry : entries) ids.push_back(index(entry.expert));
  return ids;
}
Ids ids_of(std::span<const ExpertId> experts) {
  Ids ids;
  for (const ExpertId expert : experts) ids.push_back(index(expert));
  return ids;
}

void begin(LayerVisit& visit, const Ids& ids) {
  const LayerRoutes routes{.layer = kLayer, .phase = StepPhase::kDecode, .tokens = 1, .ids = ids};
  visit.begin(std::span(&routes, 1));
}
void begin_prompt(LayerVisit& visit, const Ids& ids, int64_t tokens) {
  const LayerRoutes routes{
      .layer = kLayer, .phase = StepPhase::kPrompt, .tokens = tokens, .ids = ids};
  visit.begin(std::span(&routes, 1));
}
bool is_cached(const ExpertCache& cache, int32_t expert) {
  return cache.find({kLayer, ExpertId{expert}}).has_value();
}
/// Brings in every miss for which there is a slot.
void bring_in(LayerVisit& visit) {
  while (const std::optional<Entry> entry = visit.reserve_next()) visit.arrived(entry->slot);
}
/// A whole visit of decode.
void use(ExpertCache& cache, const Ids& ids) {
  LayerVisit visit(cache);
  begin(visit, ids);
  bring_in(visit);
  EXPECT_EQ(visit.num_waiting(), 0u);
}

TEST(LayerVisit, WhatLiesElsewhereNeedsNoSlotAndItsUseCounts) {
  ExpertCache cache = make_cache(2);
  LayerVisit visit(cache);
  const Ids ids = {4, 7, 2};
  const LayerRoutes routes{.layer = kLayer, .phase = StepPhase::kDecode, .tokens = 1, .ids = ids};
  visit.begin(std::span(&routes, 1), [](ExpertId expert) { return index(expert) == 7; });
  EXPECT_EQ(ids_of(visit.misses()), (Ids{2, 4}));
  bring_in(visit);
  EXPECT_EQ(visit.num_waiting(), 0u);
  EXPECT_EQ(cache.stats().uses[cache.shape().index_of({kLayer, ExpertId{7}})], 1u);
}

TEST(LayerVisit, TellsDistinctHitsFromMissesInTheOrderOfTheFile) {
  ExpertCache cache = make_cache(6);
  use(cache, {7, 3});
  LayerVisit visit(cache);
  begin_prompt(visit, {9, 3, 3, 2, 7, 9}, 3);
  EXPECT_EQ(ids_of(visit.hits()), (Ids{3, 7}));
  EXPECT_EQ(ids_of(visit.misses()), (Ids{2, 9}));
  EXPECT_TRUE(visit.guessed().empty());
  EXPECT_TRUE(visit.arriving().empty());
}

TEST(LayerVisit, DeliversHitsAndThenWhatArrivesInItsOrder) {
  ExpertCache cache = make_cache(6);
  use(cache, {4});
  LayerVisit visit(cache);
  begin(visit, {4, 1, 2});
  const std::optional<Entry> first = visit.reserve_next();
  const std::optional<Entry> second = visit.reserve_next();
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(visit.reserve_next());
  EXPECT_EQ(ids_of(visit.deliver(10)), (Ids{4}));
  EXPECT_FALSE(visit.has_undelivered());
  visit.arrived(second->slot);
  visit.arrived(first->slot);
  EXPECT_EQ(ids_of(visit.deliver(1)), (Ids{2}));
  EXPECT_EQ(ids_of(visit.deliver(10)), (Ids{1}));
  EXPECT_EQ(visit.num_delivered(), 3u);
}

TEST(LayerVisit, PinsItsHitsBeforeAMissMayEvict) {
  ExpertCache cache = make_cache(2);
  use(cache, {1, 2});
  LayerVisit visit(cache);
  begin(visit, {1, 2, 3});
  EXPECT_FALSE(visit.reserve_next());
  EXPECT_EQ(visit.num_waiting(), 1u);
  EXPECT_EQ(ids_of(visit.deliver(2)), (Ids{1, 2}));
  EXPECT_FALSE(visit.reserve_next());  // delivered, but its work goes on
  visit.recycle();
  EXPECT_TRUE(visit.reserve_next());
}

TEST(LayerVisit, OneSlotServesManyExpertsInTurn) {
  ExpertCache cache = make_cache(1);
  LayerVisit visit(cache);
  begin(visit, {5, 6, 7});
  Ids delivered;
  while (visit.num_waiting() > 0) {
    bring_in(visit);
    for (const int32_t id : ids_of(visit.deliver(10))) delivered.push_back(id);
    visit.recycle();
  }
  EXPECT_EQ(delivered, (Ids{5, 6, 7}));
}

TEST(LayerVisit, WhatFailedIsAbsentAgain) {
  ExpertCache cache = make_cache(2);
  {
    LayerVisit visit(cache);
    begin(visit, {8});
    const std::optional<Entry> entry = visit.reserve_next();
    ASSERT_TRUE(entry);
    visit.failed(entry->slot);
    EXPECT_FALSE(visit.has_undelivered());
  }
  EXPECT_FALSE(is_cached(cache, 8));
  use(cache, {8, 9});  // both slots are free
  EXPECT_TRUE(is_cached(cache, 8) && is_cached(cache, 9));
}

TEST(LayerVisit, EndsUnpinnedWhateverWasDelivered) {
  ExpertCache cache = make_cache(2);
  {
    LayerVisit visit(cache);
    begin(visit, {1, 2, 3});
    bring_in(visit);
    (void)visit.deliver(1);
  }
  use(cache, {4, 5});  // may evict both
  EXPECT_TRUE(is_cached(cache, 4) && is_cached(cache, 5));
}

// The best rank is noted last, so that of equal counts it is the one that stays.
TEST(LayerVisit, OfEqualCountsTheBestRankStays) {
  ExpertCache cache = make_cache(3);
  use(cache, {2, 1, 0});
  use(cache, {10});
  EXPECT_FALSE(is_cached(cache, 0));
  use(cache, {11});
  EXPECT_FALSE(is_cached(cache, 1));
  EXPECT_TRUE(is_cached(cache, 2));
}

TEST(LayerVisit, APromptDoesNotDisplaceWhatDecodeUses) {
  ExpertCache cache = make_cache(4, 2);
  use(cache, {1, 2});
  LayerVisit visit(cache);
  begin_prompt(visit, {3, 4, 5, 6, 7, 8}, 3);
  Ids delivered;
  while (visit.num_waiting() > 0) {
    bring_in(visit);
    for (const int32_t id : ids_of(visit.deliver(10))) delivered.push_back(id);
    visit.recycle();
  }
  visit.end();
  EXPECT_EQ(delivered, (Ids{3, 4, 5, 6, 7, 8}));
  EXPECT_TRUE(is_cached(cache, 1) && is_cached(cache, 2));
}

// A step with a token of decode and a prompt keeps decode's experts; the prompt's pass through.
TEST(LayerVisit, APromptBesideDecodeDoesNotDisplaceWhatDecodeUses) {
  ExpertCache cache = make_cache(5, 2);
  use(cache, {1, 2});
  LayerVisit visit(cache);
  const Ids decode = {9, 3};
  const Ids prompt = {3, 4, 5, 6, 7, 8};
  const std::array<LayerRoutes, 2> routes = {
      LayerRoutes{.layer = kLayer, .phase = StepPhase::kDecode, .tokens = 1, .ids = decode},
      LayerRoutes{.layer = kLayer, .phase = StepPhase::kPrompt, .tokens = 3, .ids = prompt}};
  visit.begin(routes);
  EXPECT_EQ(ids_of(visit.misses()), (Ids{3, 4, 5, 6, 7, 8, 9}));
  while (visit.num_waiting() > 0) {
    bring_in(visit);
    (void)visit.deliver(10);
    visit.recycle();
  }
  visit.end();
  EXPECT_TRUE(is_cached(cache, 3) && is_cached(cache, 9));
  EXPECT_EQ(cache.stats().tokens, 2u);  // of decode
}

TEST(LayerVisit, GuessesThatCameTrueAreToldApartAndStay) {
  ExpertCache cache = make_cache(4, 2);
  ExpertPin ready = cache.reserve({kLayer, ExpertId{3}}, Purpose::kGuess);
  ExpertPin loading = cache.reserve({kLayer, ExpertId{4}}, Purpose::kGuess);
  ASSERT_TRUE(ready && loading);
  const ExpertCache::Slot first = ready.slot();
  const ExpertCache::Slot second = loading.slot();
  cache.set_ready(first);
  ready.release();
  LayerVisit visit(cache);
  begin(visit, {3, 4});
  EXPECT_EQ(ids_of(visit.guessed()), (Ids{3}));
  EXPECT_EQ(ids_of(visit.arriving()), (Ids{4}));
  EXPECT_TRUE(visit.hits().empty() && visit.misses().empty());
  loading.release();  // the visit has a pin of its own
  visit.arrived(second);
  EXPECT_EQ(ids_of(visit.deliver(10)), (Ids{3, 4}));
  visit.end();
  EXPECT_EQ(cache.admission_of(first), Admission::kCached);
  EXPECT_EQ(cache.admission_of(second), Admission::kCached);
}

}  // namespace
}  // namespace moeflux
