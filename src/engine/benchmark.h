// Timed evaluations of one engine: prompts and single tokens, at a depth, repeated. Knows nothing
// about how results are shown.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace moeflux {

/// A prompt of n_prompt tokens evaluated together, then n_gen tokens one by one as greedy
/// generation evaluates them, after n_depth tokens that are not timed.
struct BenchmarkTest {
  int64_t n_prompt = 0;
  int64_t n_gen = 0;
  int64_t n_depth = 0;

  int64_t tokens() const { return n_prompt + n_gen; }
  int64_t context() const { return n_depth + n_prompt + n_gen; }
};

struct BenchmarkOptions {
  int repetitions = 5;
  int warm_ups = 1;  // repetitions before the first that counts
  uint64_t seed = 0;
  /// Natural tokens, of which each repetition takes the next; empty: uniform over the vocabulary.
  std::span<const TokenId> text = {};
  std::function<void(int finished)> progress = {};
};

struct BenchmarkRun {
  std::vector<uint64_t> samples_ns;  // of each repetition
  ExpertStats experts;               // of the timed parts of all repetitions
};

/// Every repetition begins with an empty sequence and its own tokens. Fails as Engine::eval does.
Result<BenchmarkRun> run_benchmark(Engine& engine, const BenchmarkTest& test,
                                   const BenchmarkOptions& options);

}  // namespace moeflux
