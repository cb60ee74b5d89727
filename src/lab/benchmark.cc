#include "lab/benchmark.h"

#include <algorithm>
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
  uint64_t turns_ns = 0;
};

using BenchClock = std::chrono::steady_clock;

uint64_t ns_since(BenchClock::time_point begin) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(BenchClock::now() - begin);
  return static_cast<uint64_t>(ns.count());
}

Status evaluate(Engine& engine, Sequence& sequence, std::span<const TokenId> tokens,
                const EvalOptions& options) {
  return engine.eval(sequence, tokens, options,
                     [](int64_t, std::span<const float>) { return Status(); });
}

// A token as generation takes it: only the best logit is read.
EvalOptions generating(const Engine& engine) {
  return {.best = {.count = 1, .of = static_cast<int32_t>(engine.spec().vocab_size)},
          .phase = StepPhase::kDecode};
}

// A token of every sequence, of which tokens[i] is the next.
Status evaluate_step(Engine& engine, std::span<StepItem> items, std::span<const TokenId> tokens) {
  for (size_t i = 0; i < items.size(); ++i) items[i].tokens = tokens.subspan(i, 1);
  engine.eval_step(items);
  for (const StepItem& item : items) MF_RETURN_IF_ERROR(item.outcome);
  return {};
}

// Sequences of n_depth tokens. Copies, which take the memory that as many texts do: forks would
// read the same pages.
Result<std::vector<std::unique_ptr<Sequence>>> sequences_at_depth(Engine& engine,
                                                                  const BenchmarkTest& test,
                                                                  TokenSource& source) {
  std::vector<std::unique_ptr<Sequence>> sequences(static_cast<size_t>(test.n_parallel));
  for (std::unique_ptr<Sequence>& sequence : sequences) {
    MF_ASSIGN_OR_RETURN(sequence, engine.create_sequence());
  }
  const std::vector<TokenId> depth = source.take(test.n_depth);
  if (depth.empty()) return sequences;
  MF_RETURN_IF_ERROR(evaluate(engine, *sequences.front(), depth, {.logits = LogitsMode::kNone}));
  if (sequences.size() == 1) return sequences;
  MF_ASSIGN_OR_RETURN(const std::vector<std::byte> state, engine.save(*sequences.front()));
  for (size_t i = 1; i < sequences.size(); ++i) {
    MF_ASSIGN_OR_RETURN([[maybe_unused]] const auto extra, engine.load(*sequences[i], state));
  }
  return sequences;
}

Result<Repetition> repeat_in_common(Engine& engine, const BenchmarkTest& test,
                                    TokenSource& source) {
  MF_ASSIGN_OR_RETURN(const auto sequences, sequences_at_depth(engine, test, source));
  std::vector<StepItem> items;
  for (const std::unique_ptr<Sequence>& sequence : sequences) {
    items.push_back({.sequence = sequence.get(), .options = generating(engine)});
    items.back().sink = [](int64_t, std::span<const float>) { return Status(); };
  }
  const auto num_turns = static_cast<size_t>(std::min(test.n_parallel, kTurnsMost));
  Repetition repetition;
  size_t next = 0;
  for (int64_t round = -1; round < test.n_gen; ++round) {
    const std::vector<TokenId> tokens = source.take(2 * test.n_parallel);
    const ExpertStats before = engine.expert_stats();
    const BenchClock::time_point begin = BenchClock::now();
    MF_RETURN_IF_ERROR(evaluate_step(engine, items, std::span(tokens).first(items.size())));
    const uint64_t common_ns = ns_since(begin);
    const ExpertStats experts = engine.expert_stats() - before;
    const BenchClock::time_point turns_begin = BenchClock::now();
    for (size_t i = 0; i < num_turns; ++i) {
      const std::span<StepItem> turn(&items[next], 1);
      MF_RETURN_IF_ERROR(
          evaluate_step(engine, turn, std::span(tokens).subspan(items.size() + next, 1)));
      next = (next + 1) % items.size();
    }
    const uint64_t turns_ns = ns_since(turns_begin) * items.size() / num_turns;
    if (round < 0) continue;
    repetition.ns += common_ns;
    repetition.experts += experts;
    repetition.turns_ns += turns_ns;
  }
  return repetition;
}

// Makes `past` the first n_depth tokens of the source, which it may have begun with; or null.
Status reach_depth(Engine& engine, int64_t n_depth, TokenSource& source,
                   std::unique_ptr<Sequence>& past) {
  const std::vector<TokenId> depth = source.take(n_depth);
  if (past == nullptr || past->length() > n_depth) {
    past.reset();
    MF_ASSIGN_OR_RETURN(past, engine.create_sequence());
  }
  const std::span<const TokenId> missing =
      std::span(depth).subspan(static_cast<size_t>(past->length()));
  if (missing.empty()) return {};
  const Status done = evaluate(engine, *past, missing, {.logits = LogitsMode::kNone});
  if (!done.ok()) past.reset();
  return done;
}

// `past` is what all repetitions begin with; null: nothing.
Result<Repetition> repeat_once(Engine& engine, const BenchmarkTest& test, const Sequence* past,
                               TokenSource& source) {
  if (test.n_parallel > 0) return repeat_in_common(engine, test, source);
  const std::vector<TokenId> prompt = source.take(test.n_prompt);
  const std::vector<TokenId> generated = source.take(test.n_gen);
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<Sequence> sequence,
                      past == nullptr ? engine.create_sequence() : engine.fork(*past));
  const ExpertStats before = engine.expert_stats();
  const BenchClock::time_point begin = BenchClock::now();
  if (!prompt.empty()) {
    MF_RETURN_IF_ERROR(evaluate(engine, *sequence, prompt, {}));
  }
  for (const TokenId& token : generated) {
    MF_RETURN_IF_ERROR(evaluate(engine, *sequence, std::span(&token, 1), generating(engine)));
  }
  return Repetition{ns_since(begin), engine.expert_stats() - before};
}

void add_repetition(BenchmarkRun& run, const Repetition& repetition, const BenchmarkTest& test) {
  run.samples_ns.push_back(repetition.ns);
  if (test.n_parallel > 0) run.turns_ns.push_back(repetition.turns_ns);
  run.experts += repetition.experts;
}

}  // namespace

Result<std::vector<BenchmarkRun>> run_benchmark_in_turn(Engine& engine, const BenchmarkTest& test,
                                                        const BenchmarkOptions& options,
                                                        std::span<const PlanMode> plans,
                                                        std::unique_ptr<Sequence>& past) {
  TokenSource source(options, engine.spec().vocab_size);
  std::vector<BenchmarkRun> runs(plans.size());
  int finished = 0;
  if (test.n_depth == 0 || test.n_parallel > 0) {
    past.reset();
  } else {
    MF_RETURN_IF_ERROR(engine.set_plan(plans.front()));
    MF_RETURN_IF_ERROR(reach_depth(engine, test.n_depth, source, past));
  }
  for (int i = -options.warm_ups; i < options.repetitions; ++i) {
    for (size_t turn = 0; turn < plans.size(); ++turn) {
      const size_t at = i % 2 == 0 ? turn : plans.size() - 1 - turn;
      MF_RETURN_IF_ERROR(engine.set_plan(plans[at]));
      MF_ASSIGN_OR_RETURN(const Repetition repetition,
                          repeat_once(engine, test, past.get(), source));
      if (options.progress) options.progress(++finished);
      if (i >= 0) add_repetition(runs[at], repetition, test);
    }
  }
  return runs;
}

double median_ratio(std::span<const uint64_t> times, std::span<const uint64_t> times_with) {
  std::vector<double> ratios;
  for (size_t i = 0; i < times.size(); ++i) {
    ratios.push_back(static_cast<double>(times[i]) /
                     static_cast<double>(std::max<uint64_t>(1, times_with[i])));
  }
  if (ratios.empty()) return 0.0;
  std::ranges::sort(ratios);
  const size_t half = ratios.size() / 2;
  return ratios.size() % 2 == 1 ? ratios[half] : (ratios[half - 1] + ratios[half]) / 2;
}

}  // namespace moeflux
