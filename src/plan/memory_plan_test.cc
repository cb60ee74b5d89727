#include "plan/memory_plan.h"

#include <gtest/gtest.h>

#include <utility>

#include "engine/tiny_engine_test_util.h"
#include "experts/stores/tiered_expert_store.h"
#include "load/ngram_rows.h"
#include "model/mixers/compressed_attention.h"

namespace moeflux {
namespace {

class MemoryPlanTest : public TinyEngineTest {
 protected:
  MemoryPlanTest() {
    auto loaded = load_model(folder_.path(), *device_, WeightLoading::kRead);
    EXPECT_TRUE(loaded.ok());
    model_ = std::move(loaded).value();
  }

  MemoryPlan plan_for(uint64_t available, std::optional<uint64_t> asked = std::nullopt) const {
    return plan_memory(*model_, {.available_bytes = available,
                                 .context_length = 257,
                                 .scratch_bytes = kScratch,
                                 .expert_cache_bytes = asked});
  }

  static constexpr uint64_t kScratch = 4 * kGiB;  // beyond it the reserve is what it is
  std::unique_ptr<LoadedModel> model_;
};

TEST_F(MemoryPlanTest, CountsEveryPart) {
  const MemoryPlan plan = plan_for(8 * kGiB);
  EXPECT_EQ(plan.dense_bytes, model_->dense.bytes);
  EXPECT_EQ(plan.scratch_bytes, kScratch);
  // Gated DeltaNet: (3 taps x 64 channels + 2 heads x 16 x 16) floats; attention: two pages of 256
  // tokens x 1 head x (16 + 16) floats.
  EXPECT_EQ(plan.state_bytes, (3u * 64 + 2 * 16 * 16) * 4 + 512u * 32 * 4);
  EXPECT_EQ(plan.reader_bytes, 256u * 512 * kKiB);
  EXPECT_EQ(plan.reserve_bytes, 512 * kMiB);
  EXPECT_EQ(plan.expert_slot_bytes, 3u * 32 * 32 * 4);
  EXPECT_EQ(plan.experts_bytes, 8 * plan.expert_slot_bytes);
  EXPECT_EQ(plan.cold_bytes_per_token, 2 * 2 * plan.expert_slot_bytes);
  EXPECT_EQ(plan.expert_cache_bytes, 8 * plan.expert_slot_bytes);  // all fit
}

TEST_F(MemoryPlanTest, TheCacheTakesWhatTheOthersLeave) {
  const MemoryPlan none = plan_for(kScratch);
  const uint64_t taken = none.dense_bytes + none.state_bytes + none.scratch_bytes +
                         none.reader_bytes + none.reserve_bytes;
  EXPECT_EQ(none.taken_bytes(), taken);
  const uint64_t slot = none.expert_slot_bytes;
  EXPECT_EQ(none.expert_cache_bytes, 0u);
  EXPECT_EQ(plan_for(taken).expert_cache_bytes, 0u);
  EXPECT_EQ(plan_for(taken + slot - 1).expert_cache_bytes, 0u);
  EXPECT_EQ(plan_for(taken + slot).expert_cache_bytes, slot);
  EXPECT_EQ(plan_for(taken + 5 * slot / 2).expert_cache_bytes, 5 * slot / 2);
  EXPECT_EQ(plan_for(taken + 9 * slot).expert_cache_bytes, 8 * slot);
}

TEST_F(MemoryPlanTest, FurtherSequencesHaveHalfOfTheReserveAndThenTheirStates) {
  const auto plan = [&](int64_t sequences, uint64_t available = 16 * kGiB) {
    return plan_memory(*model_, {.available_bytes = available,
                                 .context_length = 2048,
                                 .sequences = sequences,
                                 .scratch_bytes = kScratch});
  };
  const uint64_t one = state_bytes(*model_, kSequenceTokens, 0);
  const uint64_t half = plan(1).reserve_bytes / 2;
  const auto beyond = static_cast<int64_t>(half / one);
  EXPECT_EQ(plan(1).sequences_bytes, 0u);
  EXPECT_EQ(plan(1 + beyond).sequences_bytes, 0u);
  EXPECT_EQ(plan(1 + 2 * beyond).sequences_bytes, 2 * beyond * one - half);
  EXPECT_EQ(plan(1 + 2 * beyond).taken_bytes(),
            plan(1).taken_bytes() + plan(1 + 2 * beyond).sequences_bytes);
  // Experts keep three quarters of what is left for them.
  const uint64_t little = plan(1).taken_bytes() + 4000;
  EXPECT_EQ(plan(1 + 2 * beyond, little).sequences_bytes, 1000u);
}

TEST_F(MemoryPlanTest, WhatTheUserAsksForIsTaken) {
  EXPECT_EQ(plan_for(0, 12345).expert_cache_bytes, 12345u);
  EXPECT_EQ(plan_for(uint64_t{1} << 50, 0).expert_cache_bytes, 0u);
}

TEST_F(MemoryPlanTest, AContextThatNobodyAskedForIsWhatMemoryAllows) {
  constexpr uint64_t kPage = 256u * 32 * 4;  // bytes of the state of 256 tokens
  for (ExpertLayer& layer : model_->experts.layers) layer.num_experts *= 64;
  // With so much beside all that is neither a state nor experts.
  const auto plan = [&](uint64_t shared, std::optional<uint64_t> cache = std::nullopt) {
    MemoryPlanRequest request = {.available_bytes = 2 * kScratch,
                                 .context_length = 200,
                                 .context_may_grow = true,
                                 .scratch_bytes = kScratch,
                                 .expert_cache_bytes = cache};
    const MemoryPlan parts = plan_memory(*model_, request);
    request.available_bytes = parts.taken_bytes() - parts.state_bytes + shared;
    return plan_memory(*model_, request);
  };
  const MemoryPlan none = plan(0);
  const uint64_t fixed = none.state_bytes - kPage;
  const uint64_t experts = none.experts_bytes;
  EXPECT_EQ(none.context_length, 200);  // reserved memory is there in any case
  // A quarter of what is shared, or what all experts leave of it; powers of two.
  EXPECT_EQ(plan(4 * (fixed + kPage) - 4).context_length, 200);
  EXPECT_EQ(plan(4 * (fixed + kPage)).context_length, 256);
  EXPECT_EQ(plan(4 * (fixed + 2 * kPage)).context_length, 512);
  EXPECT_EQ(plan(4 * (fixed + 4 * kPage) - 4).context_length, 512);
  EXPECT_EQ(plan(4 * (fixed + 4 * kPage)).context_length, testing::TinyModel::kContext);
  EXPECT_EQ(plan(uint64_t{1} << 40).context_length, testing::TinyModel::kContext);
  // A cache of a size that was asked for gives nothing up.
  EXPECT_EQ(plan(4 * (fixed + 2 * kPage), 5 * kPage).context_length, 512);
  EXPECT_EQ(plan(4 * (fixed + 2 * kPage), 7 * kPage).context_length, 256);
  EXPECT_EQ(plan(4 * (fixed + 2 * kPage), experts).context_length, 200);
  // Another has what a longer text would take, until there is one.
  const MemoryPlan longer = plan(4 * (fixed + 2 * kPage));
  EXPECT_EQ(longer.context_bytes, fixed + 2 * kPage);
  EXPECT_EQ(longer.state_bytes, fixed + kPage);
  EXPECT_EQ(longer.expert_cache_bytes, 3 * fixed + 7 * kPage);
}

TEST_F(MemoryPlanTest, WhatLiesOnADeviceIsNotTakenFromTheHost) {
  MemoryPlanRequest request = {.available_bytes = 2 * kGiB,
                               .context_length = 257,
                               .scratch_bytes = kScratch,
                               .on_device = {.scratch_bytes = kScratch}};
  const MemoryPlan scratch = plan_memory(*model_, request);
  EXPECT_EQ(scratch.scratch_bytes, kScratch);
  EXPECT_EQ(scratch.taken_bytes(), scratch.dense_bytes + scratch.state_bytes +
                                       scratch.reader_bytes + scratch.reserve_bytes);
  EXPECT_EQ(scratch.expert_cache_bytes, 8 * scratch.expert_slot_bytes);
  request.on_device = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
  const MemoryPlan all = plan_memory(*model_, request);
  EXPECT_EQ(all.on_device.dense_bytes, all.dense_bytes);
  EXPECT_EQ(all.on_device.state_bytes, all.state_bytes);
  EXPECT_EQ(all.taken_bytes(), all.reader_bytes + all.reserve_bytes);
  request.on_device = {};
  EXPECT_EQ(plan_memory(*model_, request).expert_cache_bytes, 0u);
}

TEST_F(MemoryPlanTest, CountsRowsOfTablesThatAStepReads) {
  const MemoryPlan none = plan_for(8 * kGiB);
  EXPECT_EQ(none.table_rows_bytes, 0u);
  NgramTable& table = model_->ngram_tables.emplace_back();
  table.hashes.sizes = {37, 41};
  table.row_dim = 64;
  table.part_rows = 78;
  table.parts.emplace_back().format = QuantFormat::plain(DType::kBf16);
  MemoryPlanRequest request = {.available_bytes = 8 * kGiB,
                               .context_length = 257,
                               .step_tokens_max = 512,
                               .scratch_bytes = kScratch};
  const MemoryPlan some = plan_memory(*model_, request);
  EXPECT_EQ(some.table_rows_bytes,
            NgramRows::memory_bytes(model_->ngram_tables, 512, kReaderDepth));
  EXPECT_GE(some.table_rows_bytes, 512u * 2 * (64 * 2 + 2 * 64 * 4));
  EXPECT_EQ(some.taken_bytes(), some.dense_bytes + some.state_bytes + some.scratch_bytes +
                                    some.reader_bytes + some.table_rows_bytes + some.reserve_bytes);
}

// DeepSeek-V4's: entries of 128 tokens are all listed, of those of 4 tokens what an index chooses.
TEST_F(MemoryPlanTest, CountsTheKeysThatADeviceGathers) {
  const CacheTypes types = {DType::kF16, DType::kF16};
  EXPECT_EQ(listed_keys_bytes(model_->spec(), types, 4096), 0u);
  CompressedAttentionSpec attention;
  attention.head_dim = 512;
  attention.window = 128;
  const auto bytes = [&](int64_t tokens) { return attention.listed_bytes(tokens, types); };
  EXPECT_EQ(bytes(1 << 20), 0u);  // a window lies in pages
  attention.unit = 4;
  attention.index = EntryIndexSpec{.num_heads = 64, .head_dim = 128, .selected = 512};
  EXPECT_EQ(bytes(1 << 20), 768u * 512 * 2);  // 640 keys in whole tiles
  EXPECT_EQ(bytes(100), 256u * 512 * 2);
  attention.unit = 128;
  attention.index.reset();
  EXPECT_EQ(bytes(1 << 20), 8448u * 512 * 2);
  ModelSpec spec = model_->spec();
  spec.layers[0].mixer = share_mixer(attention);
  EXPECT_EQ(listed_keys_bytes(spec, types, 1 << 20), 4 * 8448u * 512 * 2 + kListedTogetherBytes);
}

TEST_F(MemoryPlanTest, ADevicesMemoryIsForNearExpertsAndAPromptsRing) {
  for (ExpertLayer& layer : model_->experts.layers) layer.num_experts = 1024;
  ASSERT_EQ(model_->experts.num_experts_total(), 2048u);
  const uint64_t slot = model_->experts.slot_bytes_max();
  const uint64_t part = 16 * slot;
  const uint64_t others = kDeviceReserveBytes + 100;
  const auto plan = [&](uint64_t free, std::optional<uint64_t> wanted = std::nullopt) {
    return plan_tiers(model_->experts, free, others, wanted);
  };
  EXPECT_EQ(plan(others).near_bytes + plan(others).ring_bytes, 0u);
  EXPECT_EQ(plan(0).near_bytes, 0u);
  // A quarter must be two parts at least.
  EXPECT_EQ(plan(others + 127 * slot).ring_bytes, 0u);
  EXPECT_EQ(plan(others + 128 * slot).ring_bytes, 2 * part);
  EXPECT_EQ(plan(others + 128 * slot).near_bytes, 96 * slot);
  EXPECT_EQ(plan(others + 1024 * slot).ring_bytes, kRingPartsMax * part);
  // Two layers lack 32 experts each: two parts arrive while one computes.
  EXPECT_EQ(plan(others + (2048 - 64) * slot).ring_bytes, 3 * part);
  EXPECT_EQ(plan(others + 2048 * slot).ring_bytes, 0u);
  EXPECT_EQ(plan(0, 128 * slot).near_bytes, 96 * slot);  // as the user asked
  EXPECT_EQ(plan(others + 128 * slot, 0).near_bytes, 0u);
}

TEST_F(MemoryPlanTest, WithADriveBehindThemBothTiersShareWhatIsAskedFor) {
  const MemoryPlan plan = plan_for(0, 8);
  const uint64_t slot = plan.expert_slot_bytes;
  const auto split = [&](uint64_t near, std::optional<uint64_t> wanted, bool near_is_wanted) {
    const StreamTiers s = plan_stream_tiers({near, 0}, plan, wanted, near_is_wanted);
    return std::pair(s.near_bytes, s.far_bytes);
  };
  EXPECT_EQ(split(9 * slot, std::nullopt, false), std::pair(9 * slot, plan.expert_cache_bytes));
  EXPECT_EQ(split(9 * slot, 6 * slot, false), std::pair(3 * slot, 3 * slot));
  EXPECT_EQ(split(2 * slot, 6 * slot, false), std::pair(2 * slot, 4 * slot));
  EXPECT_EQ(split(9 * slot, 8 * slot, true), std::pair(7 * slot, slot));
  EXPECT_EQ(split(9 * slot, slot, false), std::pair(uint64_t{0}, slot));
  EXPECT_EQ(split(9 * slot, 0, false), std::pair(uint64_t{0}, uint64_t{0}));
}

TEST(LogitsRows, GrowWithTheTokensOfAStep) {
  ModelSpec spec;
  spec.vocab_size = 250'000;
  EXPECT_EQ(logits_rows_max(spec, 32), 32);
  EXPECT_EQ(logits_rows_max(spec, 512), 67);
  EXPECT_EQ(logits_rows_max(spec, 4096), 268);
  EXPECT_EQ(best_rows_max(spec, 4096), 256);
}

TEST(MemoryReserve, IsAFigureAndAnEighthOfLittle) {
  EXPECT_EQ(memory_reserve(0), 0u);
  EXPECT_EQ(memory_reserve(256 * kMiB), 32 * kMiB);
  EXPECT_EQ(memory_reserve(4 * kGiB), 512 * kMiB);
  EXPECT_EQ(memory_reserve(512 * kGiB), 512 * kMiB);
}

// Qwen3-30B-A3B's keys and values of 1,024 tokens, in 16 bits.
constexpr uint64_t kStateOfThirtyB = uint64_t{1024} * 48 * 2 * 4 * 128 * 2;

TEST(UsualSequences, AreAsManyAsADeviceWithAllWeightsHasRoomFor) {
  SequenceRoom data_center{.is_resident = true,
                           .state_bytes = 100 * kGiB,
                           .sequence_bytes = kStateOfThirtyB,
                           .rows_max = 441};
  EXPECT_EQ(usual_sequences(data_center), 256);
  data_center.rows_max = 110;  // more would not share a step
  EXPECT_EQ(usual_sequences(data_center), 110);
  SequenceRoom graphics_card{.is_resident = true,
                             .state_bytes = 5 * kGiB,
                             .sequence_bytes = kStateOfThirtyB,
                             .rows_max = 220};
  EXPECT_EQ(usual_sequences(graphics_card), 53);
  graphics_card.state_bytes = 100 * kMiB;
  EXPECT_EQ(usual_sequences(graphics_card), 4);
}

TEST(UsualSequences, AreFourOnALaptopWhateverItsMemoryHolds) {
  const SequenceRoom laptop{.is_resident = false,
                            .state_bytes = 8 * kGiB,
                            .sequence_bytes = kStateOfThirtyB,
                            .rows_max = 110};
  EXPECT_EQ(usual_sequences(laptop), 4);
}

TEST(ExpertCacheBudget, ALaptopOfEightGigabytesKeepsSixForExperts) {
  const MemoryPlan plan{.dense_bytes = 1330 * kMiB,
                        .state_bytes = 81 * kMiB,
                        .scratch_bytes = 130 * kMiB,
                        .reader_bytes = 32 * kMiB,
                        .reserve_bytes = 512 * kMiB,
                        .expert_slot_bytes = 1769472,
                        .available_bytes = 8 * kGiB};
  EXPECT_EQ(expert_cache_budget(plan, 10240), 6107 * kMiB);
  EXPECT_EQ(expert_cache_budget(plan, 100), 176947200u);
}

TEST(ExpertCacheBudget, NothingIsLeftWhereThePartsExceedWhatIsAvailable) {
  const MemoryPlan plan{
      .dense_bytes = 9 * kGiB, .expert_slot_bytes = 1, .available_bytes = 8 * kGiB};
  EXPECT_FALSE(plan.fits());
  EXPECT_EQ(expert_cache_budget(plan, 10), 0u);
  EXPECT_EQ(expert_cache_budget({.available_bytes = 8 * kGiB}, 0), 0u);  // no experts at all
}

}  // namespace
}  // namespace moeflux
