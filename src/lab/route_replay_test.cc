// A recorded run, replayed, counts what the engine counted: the same cache, the same calls.
#include <gtest/gtest.h>

#include "base/format.h"
#include "engine/tiny_engine_test_util.h"
#include "lab/replay.h"
#include "tests/support/eval_last.h"

namespace moeflux {
namespace {

class RouteReplayTest : public TinyEngineTest {
 protected:
  /// A prompt in chunks, decode, and a second turn of both.
  void run(Engine& engine) {
    const Tokens tokens = some_tokens(120);
    for (const size_t begin : {size_t{0}, size_t{13}}) {
      const auto sequence = start(engine);
      const auto prompt = std::span(tokens).subspan(begin, 23);
      ASSERT_TRUE(eval_last(engine, *sequence, prompt).ok());
      for (size_t i = 0; i < 60; ++i) {
        ASSERT_TRUE(eval_last(engine, *sequence, std::span(tokens).subspan(begin + 23 + i, 1),
                              StepPhase::kDecode)
                        .ok());
      }
    }
  }
  RouteTraceHeader header(const Engine& engine) {
    RouteTraceHeader header{.num_layers = static_cast<int32_t>(engine.spec().layers.size()),
                            .top_k = 1};
    for (const ExpertLayer& layer : engine.loaded().experts.layers) {
      header.num_experts = std::max(header.num_experts, layer.num_experts);
      header.expert_bytes.push_back(layer.num_experts == 0 ? 0 : layer.bytes_per_expert());
    }
    return header;
  }

  // Lookahead changes none of the counts but the bytes, by what it guessed wrong (lookahead_test).
  void expect_parity(const std::string& directory, const std::vector<size_t>& sizes) {
    const auto probe = Engine::open(directory, *device_, {.expert_cache_bytes = 0});
    ASSERT_TRUE(probe.ok());
    const uint64_t slot_bytes = (*probe)->experts().capacity_bytes();
    for (const CachePolicy policy : {CachePolicy::kDecayedLfu, CachePolicy::kLru}) {
      for (const size_t slots : sizes) {
        SCOPED_TRACE(::testing::Message() << cache_policy_name(policy) << ", slots " << slots);
        const auto engine = Engine::open(directory, *device_,
                                         {.expert_cache_bytes = slots * slot_bytes,
                                          .prefill_chunk = 7,
                                          .eviction = {.policy = policy},
                                          .lookahead = LookaheadMode::kOff});
        ASSERT_TRUE(engine.ok());
        ASSERT_EQ((*engine)->experts().capacity_bytes(), slots * slot_bytes);
        expect_parity(**engine, slots, policy);
      }
    }
  }
  void expect_parity(Engine& engine, size_t slots, CachePolicy policy) {
    const std::string path = folder_ / "routes.csv";
    auto writer = RouteTraceWriter::create(path, header(engine));
    ASSERT_TRUE(writer.ok());
    engine.experts().routes().observe(writer->get());
    run(engine);
    engine.experts().routes().observe(nullptr);
    ASSERT_TRUE((*writer)->commit().ok());
    const auto trace = RouteTrace::read(path);
    ASSERT_TRUE(trace.ok()) << trace.error().to_string();
    const ReplayResult replayed =
        replay(*trace, {.num_slots = slots, .eviction = {.policy = policy}, .staging = true});
    const ExpertStats counted = engine.expert_stats();
    EXPECT_EQ(replayed.prefill.hits + replayed.decode.hits, counted.hits);
    EXPECT_EQ(replayed.prefill.misses + replayed.decode.misses, counted.misses);
    EXPECT_EQ(replayed.prefill.bytes_read + replayed.decode.bytes_read, counted.bytes_read);
    EXPECT_EQ(replayed.evictions, counted.evictions);
    EXPECT_EQ(replayed.prefill.tokens, 2 * 23u);
    EXPECT_EQ(replayed.decode.tokens, 2 * 60u);
    EXPECT_GT(counted.misses, 0u);
  }
};

TEST_F(RouteReplayTest, CountsTheHitsAndMissesOfTheEngine) {
  expect_parity(folder_.path(), {1, 2, 3, 4, 5, 6, 8});
}

// 8 layers of 32 experts, 4 a token: sizes from far below one token's experts to half of all.
TEST_F(RouteReplayTest, CountsTheSameOnTheEmbeddedModel) {
  expect_parity(MOEFLUX_SOURCE_DIR "/models/fable-20m", {3, 15, 31, 32, 38, 39, 64, 128});
}

TEST_F(RouteReplayTest, PoliciesAndSizesDoNotChangeTheLogits) {
  const Tokens tokens = some_tokens(40);
  const std::vector<float> expected =
      all_logits(*open({.expert_cache_bytes = uint64_t{1} << 30}), tokens);
  const uint64_t slot_bytes = open({.expert_cache_bytes = 0})->experts().capacity_bytes();
  for (const CachePolicy policy : {CachePolicy::kDecayedLfu, CachePolicy::kLru}) {
    for (const uint64_t slots : {1, 3, 4, 7}) {
      const auto engine =
          open({.expert_cache_bytes = slots * slot_bytes, .eviction = {.policy = policy}});
      const auto sequence = start(*engine);
      std::vector<float> logits;
      for (const TokenId& token : tokens) {
        const auto last = eval_last(*engine, *sequence, std::span(&token, 1), StepPhase::kDecode);
        ASSERT_TRUE(last.ok());
        logits.insert(logits.end(), last->begin(), last->end());
      }
      EXPECT_EQ(logits, expected) << cache_policy_name(policy) << ", slots " << slots;
    }
  }
}

// Two layers of the tiny model, traced by hand.
TEST_F(RouteReplayTest, ForcedRoutesAreWhatTheEngineUses) {
  std::string text =
      "# route_trace v1\n# model=hand n_layer=1 n_expert=100 n_expert_used=1\n"
      "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n";
  for (int step = 0; step < 5; ++step) text += formatted("0,1,{},0,0,{},1,0,0\n", step, step % 2);
  const auto forced = RouteTrace::parse(text);
  ASSERT_TRUE(forced.ok());
  const auto engine = open({.expert_cache_bytes = uint64_t{1} << 30, .forced_routes = &*forced});
  const std::string path = folder_ / "routes.csv";
  auto writer = RouteTraceWriter::create(path, header(*engine));
  ASSERT_TRUE(writer.ok());
  engine->experts().routes().observe(writer->get());
  const auto sequence = start(*engine);
  for (const TokenId& token : some_tokens(10)) {
    ASSERT_TRUE(eval_last(*engine, *sequence, std::span(&token, 1), StepPhase::kDecode).ok());
  }
  ASSERT_TRUE((*writer)->commit().ok());
  const auto trace = RouteTrace::read(path);
  ASSERT_TRUE(trace.ok());
  for (const RouteTrace::Visit& visit : trace->visits()) {
    const std::span<const int32_t> ids = trace->routes(visit).ids;
    ASSERT_EQ(ids.size(), 2u);
    // The token's own expert, and the missing rank from the token after it; 4 is followed by 0,
    // both of expert 0, then by 1.
    const int32_t own = static_cast<int32_t>(visit.step % 5 % 2);
    EXPECT_EQ(ids[0], own) << visit.step;
    EXPECT_EQ(ids[1], 1 - own) << visit.step;
  }
  // Only experts 0 and 1 of two layers were read.
  EXPECT_EQ(engine->expert_stats().misses, 4u);
}

}  // namespace
}  // namespace moeflux
