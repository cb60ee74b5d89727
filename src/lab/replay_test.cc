#include "lab/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/format.h"

namespace moeflux {
namespace {

/// Tokens that prefer some experts, drifting slowly, as CSV.
std::string natural_trace(uint64_t seed, int layers, int experts, int top_k, int prompt,
                          int decode) {
  std::mt19937_64 random(seed);
  std::string text = formatted(
      "# route_trace v1\n# model=m n_layer={} n_expert={} n_expert_used={}\n"
      "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n",
      layers, experts, top_k);
  const auto token = [&](int phase, int step, int layer) {
    std::set<uint64_t> ids;
    while (ids.size() < static_cast<size_t>(top_k)) {
      const uint64_t draw = random() % static_cast<uint64_t>(experts);
      const uint64_t favourite = random() % 5 + static_cast<uint64_t>(layer + step / 20);
      ids.insert(random() % 3 == 0 ? draw : favourite % static_cast<uint64_t>(experts));
    }
    int slot = 0;
    for (const uint64_t id : ids) {
      text += formatted("0,{},{},{},{},{},1,1,0\n", phase, step, layer, slot++, id);
    }
  };
  for (int l = 0; l < layers; ++l) {
    for (int t = 0; t < prompt; ++t) token(0, t, l);
  }
  for (int t = prompt; t < prompt + decode; ++t) {
    for (int l = 0; l < layers; ++l) token(1, t, l);
  }
  return text;
}

TEST(Replay, BeladyIsNeverBeaten) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const auto trace =
        RouteTrace::parse(natural_trace(seed, 5, 24, 3, static_cast<int>(seed % 3) * 10, 60));
    ASSERT_TRUE(trace.ok()) << trace.error().to_string();
    for (const size_t slots : {1, 3, 8, 15, 16, 20, 40, 80, 120}) {
      for (const auto prompt : {PromptReplay::kAsRecorded, PromptReplay::kTokenByToken}) {
        ReplayOptions options{.num_slots = slots, .prompt = prompt};
        const uint64_t best = replay_belady(*trace, options).decode.hits;
        EXPECT_GE(best, replay_page_cache(*trace, options).decode.hits) << slots;
        for (const CachePolicy policy : {CachePolicy::kDecayedLfu, CachePolicy::kLru}) {
          options.eviction.policy = policy;
          EXPECT_GE(best, replay(*trace, options).decode.hits) << slots;
        }
      }
    }
  }
}

TEST(Replay, HitsWithExactlyTheSlotsOfOneTokenAndBelow) {
  const auto trace = RouteTrace::parse(natural_trace(3, 5, 24, 3, 10, 60));
  ASSERT_TRUE(trace.ok());
  ASSERT_EQ(trace->demand().per_token, 15);
  for (const size_t slots : {15, 12, 8}) {
    EXPECT_GT(replay(*trace, {.num_slots = slots}).decode.hit_rate(), 0.1) << slots;
  }
}

TEST(Replay, EverythingFitsMeansOneMissAnExpert) {
  const auto trace = RouteTrace::parse(natural_trace(4, 3, 16, 2, 8, 40));
  ASSERT_TRUE(trace.ok());
  const ReplayResult result = replay(*trace, {.num_slots = 48});
  EXPECT_EQ(result.prefill.misses + result.decode.misses, distinct_experts(*trace).all);
  EXPECT_EQ(result.evictions, 0u);
  EXPECT_EQ(result.prefill.tokens, 8u);
  EXPECT_EQ(result.decode.tokens, 40u);
}

// Routes of a public model, and the decode hits of decayed use in per cent that were published for
// them at 6.25, 12.5 and 25 %.
TEST(ReplayOfRecordedRuns, DecayedUseBeatsLruAndMeetsThePublishedRates) {
  const auto trace = RouteTrace::read(MOEFLUX_SOURCE_DIR "/tests/golden/routes/gptoss.csv");
  ASSERT_TRUE(trace.ok()) << trace.error().to_string();
  size_t slots = trace->shape().size() / 16;
  for (const double published : {52.0, 67.0, 81.0}) {
    ReplayOptions options{.num_slots = slots};
    const double lfu = replay(*trace, options).decode.hit_rate();
    EXPECT_LE(lfu, replay_belady(*trace, options).decode.hit_rate()) << slots;
    options.eviction.policy = CachePolicy::kLru;
    EXPECT_GE(lfu, replay(*trace, options).decode.hit_rate()) << slots;
    options = {.num_slots = slots, .prompt = PromptReplay::kTokenByToken};
    EXPECT_NEAR(100.0 * replay(*trace, options).decode.hit_rate(), published, 1.0) << slots;
    slots *= 2;
  }
}

}  // namespace
}  // namespace moeflux
