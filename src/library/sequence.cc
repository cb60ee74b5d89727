#include "library/sequence.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/format.h"
#include "library/options.h"

namespace moeflux {

uint64_t EvalTimer::now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

EvalTimer::EvalTimer(mf_sequence& sequence)
    : sequence_(sequence), published_length_(sequence.sequence->length()), begin_us_(now_us()) {}

EvalTimer::~EvalTimer() { publish(); }

void EvalTimer::publish() {
  const int64_t length = sequence_.sequence->length();
  const int64_t tokens = std::max<int64_t>(0, length - std::exchange(published_length_, length));
  const uint64_t elapsed = elapsed_us();
  const uint64_t us = elapsed - std::exchange(published_us_, elapsed);
  sequence_.publish_position();
  sequence_.open->publish_metrics(static_cast<uint64_t>(tokens), us);
}

Status evaluate(mf_sequence& sequence, std::span<const TokenId> tokens, const EvalOptions& options,
                const TokenProgress& progress, const LogitsSink& sink, EvalTimer& timer) {
  const int64_t before = sequence.sequence->length();
  const auto total = static_cast<int64_t>(tokens.size());
  EvalOptions publishing = options;
  publishing.progress = [&](int64_t done) {
    return timer.outside([&] { return !progress || progress(done, total); });
  };
  std::vector<float> last;
  const Status done = sequence.open->engine->eval(
      *sequence.sequence, tokens, publishing, [&](int64_t first, std::span<const float> rows) {
        const auto vocab_size = static_cast<size_t>(sequence.open->engine->spec().vocab_size);
        const std::span<const float> row = rows.last(vocab_size);
        last.assign(row.begin(), row.end());
        return sink ? timer.outside([&] { return sink(first, rows); }) : Status();
      });
  if (done.ok()) {
    sequence.logits = std::move(last);
  } else if (sequence.sequence->length() != before) {
    sequence.logits.clear();
  }
  return done;
}

Status ensure_logits(mf_sequence& sequence, std::stop_token stop) {
  if (!sequence.logits.empty()) return {};
  const std::span<const TokenId> tokens = sequence.sequence->tokens();
  if (tokens.empty()) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "the sequence is empty, there is no last token; evaluate a prompt first");
  }
  const TokenId last = tokens.back();
  Engine& engine = *sequence.open->engine;
  MF_RETURN_IF_ERROR(
      engine.truncate(*sequence.sequence, sequence.sequence->length() - 1, std::move(stop)));
  // One token, which nothing stops: without it the sequence would not be what it was.
  EvalTimer timer(sequence);
  return evaluate(sequence, {&last, 1}, {.logits = LogitsMode::kLast}, {}, {}, timer);
}

Result<Sampler> make_sampler(const mf_sequence& sequence, const SamplerOptions& options) {
  MF_ASSIGN_OR_RETURN(Sampler sampler, Sampler::create(options));
  sampler.set_draws_count(sequence.sampler.draws_count);
  for (const TokenId token : sequence.sequence->tokens()) sampler.accept(token);
  return sampler;
}

SamplerOptions with_vocab_limit(const OpenModel& open, SamplerOptions options) {
  if (open.tokenizer) options.vocab_limit = open.tokenizer->vocab_size();
  return options;
}

}  // namespace moeflux
