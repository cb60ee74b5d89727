// Lookahead in whole models: it may change when bytes are read and nothing else.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/tiny_engine_test_util.h"
#include "tests/support/eval_last.h"
#include "tests/support/soak.h"

namespace moeflux {
namespace {

constexpr const char* kFable = MOEFLUX_SOURCE_DIR "/models/fable-20m";

class LookaheadEngineTest : public TinyEngineTest {
 protected:
  struct Decoded {
    std::vector<float> logits;
    ExpertStats experts;
  };

  /// A short prompt, then token by token.
  Decoded decode(const std::string& folder, const EngineOptions& options, size_t count) {
    auto engine = Engine::open(folder, *device_, options);
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
    const auto sequence = start(**engine);
    Decoded decoded;
    const Tokens tokens = some_tokens(count);
    for (size_t i = 0; i < tokens.size();) {
      const size_t n = i == 0 ? 5 : 1;
      const auto last = eval_last(**engine, *sequence, std::span(tokens).subspan(i, n),
                                  i == 0 ? StepPhase::kPrompt : StepPhase::kDecode);
      EXPECT_TRUE(last.ok());
      decoded.logits.insert(decoded.logits.end(), last->begin(), last->end());
      i += n;
    }
    decoded.experts = (*engine)->expert_stats();
    return decoded;
  }
  uint64_t slot_bytes(const std::string& folder) {
    return (*Engine::open(folder, *device_, {.expert_cache_bytes = 0}))->experts().capacity_bytes();
  }

  void expect_same_bits(const std::string& folder, const std::vector<uint64_t>& slots,
                        size_t tokens) {
    const uint64_t slot = slot_bytes(folder);
    const Decoded expected = decode(folder, {.lookahead = LookaheadMode::kOff}, tokens);
    for (const uint64_t n : slots) {
      const auto run = [&](LookaheadMode mode) {
        return decode(folder, {.expert_cache_bytes = n * slot, .lookahead = mode}, tokens);
      };
      const Decoded off = run(LookaheadMode::kOff);
      EXPECT_EQ(off.logits, expected.logits) << n;
      EXPECT_EQ(off.experts.lookahead_us, 0u);
      for (const LookaheadMode mode : {LookaheadMode::kOn, LookaheadMode::kAuto}) {
        const Decoded with = run(mode);
        EXPECT_EQ(with.logits, expected.logits) << n;
        EXPECT_EQ(with.experts.hits, off.experts.hits) << n;
        EXPECT_EQ(with.experts.misses, off.experts.misses) << n;
        EXPECT_EQ(with.experts.evictions, off.experts.evictions) << n;
      }
    }
  }
};

TEST_F(LookaheadEngineTest, ChangesNoBitOfATinyModelAtAnyCacheSize) {
  expect_same_bits(folder_.path(), {1, 2, 3, 4, 5, 6, 7, 8}, 40);
}

// 8 layers of 32 experts, 4 a token: below the guard, at it, with 1, 2 and 4 staging slots, all.
TEST_F(LookaheadEngineTest, ChangesNoBitOfTheEmbeddedModel) {
  expect_same_bits(kFable, {0, 20, 40, 64, 128, 256}, 40);
}

TEST_F(LookaheadEngineTest, ItsGuessesComeTrueFarMoreOftenThanChance) {
  const Decoded on = decode(
      kFable, {.expert_cache_bytes = 128 * slot_bytes(kFable), .lookahead = LookaheadMode::kOn},
      100);
  EXPECT_GT(on.experts.prefetches, 100u);
  EXPECT_GT(on.experts.lookahead_us, 0u);
  // Four of 32 by chance: an eighth.
  EXPECT_GT(4 * on.experts.prefetches_useful, on.experts.prefetches);
}

// One slot and the guard's level, while the file is cut and restored under the reader.
TEST_F(LookaheadEngineTest, SoakWithAFileThatComesAndGoes) {
  testing::Soak soak(4);
  const Tokens tokens = some_tokens(24);
  const std::vector<float> expected = all_logits(*open({}), tokens);
  const std::string weights = folder_ / "model.safetensors";
  const std::string whole = testing::read_bytes(weights);
  const uint64_t slot = slot_bytes(folder_.path());
  while (soak.next()) {
    const auto engine =
        open({.expert_cache_bytes = static_cast<uint64_t>(1 + soak.round() % 5) * slot,
              .expert_io = soak.round() % 2 == 0 ? IoMode::kDirect : IoMode::kAuto,
              .prefill_chunk = 1 + soak.round() % 3,
              .lookahead = LookaheadMode::kOn});
    const auto sequence = start(*engine);
    ASSERT_TRUE(eval_last(*engine, *sequence, std::span(tokens).first(6)).ok());
    std::filesystem::resize_file(weights, whole.size() / 2);
    bool broke = false;
    for (size_t i = 6; i < tokens.size() && !broke; ++i) {
      broke =
          !eval_last(*engine, *sequence, std::span(tokens).subspan(i, 1), StepPhase::kDecode).ok();
    }
    testing::write_bytes(weights, whole);
    EXPECT_EQ(all_logits(*engine, tokens), expected);
  }
}

}  // namespace
}  // namespace moeflux
