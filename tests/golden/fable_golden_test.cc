// The embedded model, 4-bit MLX layout, against the reference run on its dequantised weights.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/format.h"
#include "tests/support/golden_file.h"
#include "tests/support/run_model.h"

namespace moeflux::testing {
namespace {

std::string fable() { return std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m"; }

// tokens{i} is a prompt and its greedy continuation; logits{i} belong to the last prompt position
// and those after it.
struct FableCase {
  std::vector<TokenId> tokens;
  int64_t prompt_tokens = 0;
  GoldenTensor logits;
  std::vector<float> margins;
};

std::vector<FableCase> fable_cases() {
  auto golden = read_golden(tests_directory() + "/golden/models/fable-20m.safetensors");
  std::vector<FableCase> all;
  for (int i = 0; golden.contains(formatted("tokens{}", i)); ++i) {
    all.push_back({golden[formatted("tokens{}", i)].ints,
                   golden[formatted("prompt_len{}", i)].ints.at(0),
                   golden[formatted("logits{}", i)], golden[formatted("margins{}", i)].floats});
  }
  EXPECT_EQ(all.size(), 3u);
  return all;
}

TEST(FableGolden, ReferenceDeviceAgrees) {
  for (const FableCase& c : fable_cases()) {
    const auto shown = static_cast<size_t>(c.prompt_tokens + c.logits.rows() - 1);
    const RunOutput run =
        run_model(fable(), std::span(c.tokens).first(shown), {.device = "reference"});
    ASSERT_FALSE(run.logits.empty());
    for (int64_t i = 0; i < c.logits.rows(); ++i) {
      EXPECT_LE(max_abs_difference(run.row(c.prompt_tokens - 1 + i), c.logits.row(i)), 1e-3)
          << "position " << i;
    }
  }
}

TEST(FableGolden, CpuDeviceAgreesAndContinuesGreedilyAlike) {
  for (const FableCase& c : fable_cases()) {
    const RunOutput run = run_model(fable(), c.tokens, {});
    ASSERT_FALSE(run.logits.empty());
    for (int64_t i = 0; i < c.logits.rows(); ++i) {
      EXPECT_GE(cosine(run.row(c.prompt_tokens - 1 + i), c.logits.row(i)), 0.9999);
    }
    for (size_t i = 0; i < c.margins.size(); ++i) {
      if (c.margins[i] < kClearMargin) continue;
      const auto at = static_cast<size_t>(c.prompt_tokens) + i;
      EXPECT_EQ(static_cast<TokenId>(top_of(run.row(static_cast<int64_t>(at) - 1)).index),
                c.tokens.at(at))
          << "generated token " << i;
    }
  }
}

TEST(FableGolden, CacheSizeAndThreadsDoNotChangeABit) {
  const std::vector<TokenId> tokens = fable_cases().front().tokens;
  const RunOutput roomy = run_model(fable(), tokens, {.threads = 2, .chunks = {20, 1}});
  ASSERT_FALSE(roomy.logits.empty());
  for (const uint64_t cache : {uint64_t{0}, uint64_t{1} << 20, uint64_t{4} << 20}) {
    for (const int threads : {1, 2, 3}) {
      const RunOutput run = run_model(
          fable(), tokens, {.threads = threads, .expert_cache_bytes = cache, .chunks = {20, 1}});
      EXPECT_EQ(run.logits, roomy.logits) << "cache " << cache << ", threads " << threads;
      if (cache > 0) {
        EXPECT_LE(run.expert_capacity_bytes, cache);
      }
      // The text touches 130 experts; only the two smaller caches must evict.
      if (cache <= uint64_t{1} << 20) {
        EXPECT_GT(run.experts.misses, roomy.experts.misses);
      }
    }
  }
}

}  // namespace
}  // namespace moeflux::testing
