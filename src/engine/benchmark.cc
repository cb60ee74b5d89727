#include "engine/benchmark.h"

#include <chrono>

#include "sampling/philox.h"

namespace moeflux {
namespace {

// An endless stream of tokens.
class TokenSource {
 public:
  TokenSource(const BenchmarkOptions& options, int64_t vocab_size)
      : options_(options), vocab_size_(vocab_size) {}

  std::vector<TokenId> take(int64_t count) {
    std::vector<TokenId> tokens(static_cast<size_t>(count));
    for (TokenId& token : tokens) token = next();
    return tokens;
  }

 private:
  TokenId next() {
    const uint64_t i = taken_++;
    if (!options_.text.empty()) return options_.text[i % options_.text.size()];
    return static_cast<TokenId>(uniform_draw(options_.seed, i) * static_cast<double>(vocab_size_));
  }

  const BenchmarkOptions& options_;
  int64_t vocab_size_;
  uint64_t taken_ = 0;
};

struct Repetition {
  uint64_t ns = 0;
  ExpertStats experts;
};

Status evaluate(Engine& engine, Sequence& sequence, std::span<const TokenId> tokens,
                const EvalOptions& options) {
  return engine.eval(sequence, tokens, options,
                     [](int64_t, std::span<const float>) { return Status(); });
}

// A token as generation takes it: where that is less work, only the best logit is read.
Status evaluate_one(Engine& engine, Sequence& sequence, TokenId token) {
  if (!engine.has_fast_best()) {
    return evaluate(engine, sequence, std::span(&token, 1), {.phase = StepPhase::kDecode});
  }
  const auto count = static_cast<int32_t>(engine.spec().vocab_size);
  const auto best = engine.eval_best(sequence, std::span(&token, 1), {.count = 1, .of = count});
  return best.ok() ? Status() : Status(best.error());
}

Result<Repetition> repeat_once(Engine& engine, const BenchmarkTest& test, TokenSource& source) {
  using Clock = std::chrono::steady_clock;
  const std::vector<TokenId> depth = source.take(test.n_depth);
  const std::vector<TokenId> prompt = source.take(test.n_prompt);
  const std::vector<TokenId> generated = source.take(test.n_gen);
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<Sequence> sequence, engine.create_sequence());
  if (!depth.empty()) {
    MF_RETURN_IF_ERROR(evaluate(engine, *sequence, depth, {.logits = LogitsMode::kNone}));
  }
  const ExpertStats before = engine.expert_stats();
  const Clock::time_point begin = Clock::now();
  if (!prompt.empty()) {
    MF_RETURN_IF_ERROR(evaluate(engine, *sequence, prompt, {}));
  }
  for (const TokenId token : generated) {
    MF_RETURN_IF_ERROR(evaluate_one(engine, *sequence, token));
  }
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin);
  return Repetition{static_cast<uint64_t>(ns.count()), engine.expert_stats() - before};
}

}  // namespace

Result<BenchmarkRun> run_benchmark(Engine& engine, const BenchmarkTest& test,
                                   const BenchmarkOptions& options) {
  TokenSource source(options, engine.spec().vocab_size);
  BenchmarkRun run;
  for (int i = 0; i < options.warm_ups + options.repetitions; ++i) {
    MF_ASSIGN_OR_RETURN(const Repetition repetition, repeat_once(engine, test, source));
    if (options.progress) options.progress(i + 1);
    if (i < options.warm_ups) continue;
    run.samples_ns.push_back(repetition.ns);
    run.experts += repetition.experts;
  }
  return run;
}

}  // namespace moeflux
