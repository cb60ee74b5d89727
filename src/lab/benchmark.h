// Timed evaluations of one engine: prompts and single tokens, at a depth, repeated. Knows nothing
// about how results are shown.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace moeflux {

/// Steps of one sequence between two common steps: all of 128 sequences would take an H200 ten
/// times as long as their common step.
constexpr int64_t kTurnsMost = 8;

/// A prompt of n_prompt tokens evaluated together, then n_gen tokens one by one as greedy
/// generation evaluates them, after n_depth tokens that are not timed.
struct BenchmarkTest {
  int64_t n_prompt = 0;
  int64_t n_gen = 0;
  int64_t n_depth = 0;
  /// Sequences that generate in common steps, 0: one by itself. Between any two of their steps up
  /// to kTurnsMost of them, the next ones each time, take a token in a step of their own, timed
  /// apart: what they would do without common steps. The first one evaluates n_depth tokens, the
  /// others have copies of its state. A first round, which takes their memory, is not timed.
  int64_t n_parallel = 0;

  int64_t sequences() const { return n_parallel > 0 ? n_parallel : 1; }
  /// Tokens that a sequence grows by from one of its timed tokens to the next, at most.
  int64_t tokens_a_round() const { return n_parallel > 0 ? 2 : 1; }
  int64_t tokens() const { return n_prompt + sequences() * n_gen; }
  /// Tokens of a sequence.
  int64_t context() const {
    const int64_t rounds = n_parallel > 0 ? n_gen + 1 : n_gen;
    return n_depth + n_prompt + tokens_a_round() * rounds;
  }
};

struct BenchmarkOptions {
  int repetitions = 5;
  int warm_ups = 1;  // repetitions before the first that counts
  uint64_t seed = 0;
  /// Natural tokens, of which each repetition takes the next; empty: uniform over the vocabulary.
  std::span<const TokenId> text = {};
  std::function<void(int finished)> progress = {};  // told of each repetition of each plan
};

struct BenchmarkRun {
  std::vector<uint64_t> samples_ns;  // of each repetition
  ExpertStats experts;               // of the timed parts of all repetitions
  std::vector<uint64_t> turns_ns;    // as many tokens by turns; empty without n_parallel
};

/// Runs of one or more plans in turn, so that what drifts meanwhile favours none: every repetition
/// runs each plan once, every second repetition from the last to the first, always with tokens of
/// its own. Without n_parallel the n_depth tokens are evaluated once, and each repetition goes on
/// from them in a fork; `past` keeps them for the next test with the same engine and options, and
/// is null at first. runs[i] is of plans[i]. A test has either a prompt or n_parallel. Fails as
/// Engine::eval and Engine::set_plan() do.
Result<std::vector<BenchmarkRun>> run_benchmark_in_turn(Engine& engine, const BenchmarkTest& test,
                                                        const BenchmarkOptions& options,
                                                        std::span<const PlanMode> plans,
                                                        std::unique_ptr<Sequence>& past);

/// The median over repetitions of times[i] over times_with[i]; 0 without any. Both have one size.
double median_ratio(std::span<const uint64_t> times, std::span<const uint64_t> times_with);

}  // namespace moeflux
