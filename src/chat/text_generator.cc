#include "chat/text_generator.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "chat/stop_strings.h"
#include "text/detokenizer.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Pieces of text on their way to the sink: whole characters, before any stop string.
class TextOut {
 public:
  TextOut(const Tokenizer& tokenizer, const GenerateOptions& options, const TextSink& sink)
      : detokenizer_(tokenizer, {.skip_special = true}),
        stops_(options.stop_strings),
        sink_(sink) {}

  bool push(TokenId token) { return sink_(stops_.push(detokenizer_.push(token))); }
  void finish() {
    std::string rest = stops_.push(detokenizer_.finish());
    sink_(rest + stops_.finish());
  }
  bool stopped() const { return stops_.stopped(); }

 private:
  Detokenizer detokenizer_;
  StopStrings stops_;
  const TextSink& sink_;
};

enum class LastToken : uint8_t { kEvaluate, kLeaveOut };

class Generation {
 public:
  Generation(Engine& engine, Sequence& sequence, Sampler& sampler, const GenerateOptions& options)
      : engine_(engine),
        sequence_(sequence),
        sampler_(sampler),
        options_(options),
        count_(static_cast<int32_t>(engine.spec().vocab_size)) {
    const int32_t limit = sampler.options().vocab_limit;
    if (limit > 0) count_ = std::min(count_, limit);
  }

  /// `logits` are those of the sequence's last token before and, if it is evaluated, after; empty
  /// when there are none.
  Status run(std::span<const float>& logits, LastToken last, TextOut& out, GenerateResult& result) {
    MF_RETURN_IF_ERROR(run_tokens(logits, last, out, result));
    if (best_.empty() || last == LastToken::kLeaveOut) return {};
    MF_ASSIGN_OR_RETURN(logits, engine_.last_logits());
    return {};
  }

 private:
  Status run_tokens(std::span<const float>& logits, LastToken last, TextOut& out,
                    GenerateResult& result) {
    while (true) {
      if (options_.tokens_max >= 0 && result.generated_tokens >= options_.tokens_max) {
        result.reason = FinishReason::kTokensMax;
        return {};
      }
      MF_ASSIGN_OR_RETURN(const TokenId token, best_.empty() ? sampler_.sample(logits)
                                                             : sampler_.sample_best(best_, count_));
      if (is_stop(token)) {
        result.reason = FinishReason::kStopToken;
        return {};
      }
      sampler_.accept(token);
      ++result.generated_tokens;
      const bool wanted = out.push(token);
      const bool is_end = finish(wanted, out, result);
      const bool is_last = is_end || result.generated_tokens == options_.tokens_max;
      if (is_last && last == LastToken::kLeaveOut) {
        if (is_end) return {};
        continue;
      }
      logits = {};
      best_ = {};
      if (sequence_.length() < engine_.context_length()) {
        MF_RETURN_IF_ERROR(evaluate(token, logits));
        ++result.decode_steps;
      }
      if (is_end) return {};
    }
  }
  Status evaluate(TokenId token, std::span<const float>& logits) {
    const int32_t needed = sampler_.best_needed(count_);
    if (needed > 0 && needed <= kTopRowsMax && engine_.has_fast_best()) {
      MF_ASSIGN_OR_RETURN(best_, engine_.eval_best(sequence_, std::span(&token, 1),
                                                   {.count = needed, .of = count_}));
    } else {
      MF_ASSIGN_OR_RETURN(logits, engine_.eval_last(sequence_, std::span(&token, 1)));
    }
    return {};
  }
  bool is_stop(TokenId token) const {
    const std::vector<TokenId>& stops = options_.stop_tokens;
    return std::find(stops.begin(), stops.end(), token) != stops.end();
  }
  bool finish(bool wanted, const TextOut& out, GenerateResult& result) const {
    if (!wanted || options_.stop.stop_requested()) {
      result.reason = FinishReason::kCancelled;
    } else if (out.stopped()) {
      result.reason = FinishReason::kStopString;
    } else if (sequence_.length() >= engine_.context_length()) {
      result.reason = FinishReason::kContextFull;
    } else {
      return false;
    }
    return true;
  }

  Engine& engine_;
  Sequence& sequence_;
  Sampler& sampler_;
  const GenerateOptions& options_;
  int32_t count_;                     // of logits that may be sampled
  std::span<const TokenLogit> best_;  // of the last token, where they are enough
};

// Runs and measures; the text ends with it.
Status decode(Generation& generation, Engine& engine, std::span<const float>& logits,
              LastToken last, TextOut& out, GenerateResult& result) {
  const ExpertStats before = engine.expert_stats();
  const Clock::time_point begin = Clock::now();
  const Status done = generation.run(logits, last, out, result);
  if (done.ok()) out.finish();
  result.decode_seconds = seconds_since(begin);
  result.decode_experts = engine.expert_stats() - before;
  return done;
}

}  // namespace

Status generate(Engine& engine, const Tokenizer& tokenizer, Sequence& sequence,
                std::span<const TokenId> prompt, const GenerateOptions& options,
                const TextSink& sink, GenerateResult& result) {
  result = {};
  MF_ASSIGN_OR_RETURN(Sampler sampler, Sampler::create(options.sampler));
  for (const TokenId token : prompt) sampler.accept(token);

  const ExpertStats before = engine.expert_stats();
  const Clock::time_point begin = Clock::now();
  std::span<const float> logits;
  const Status read = engine.eval(sequence, prompt,
                                  {.logits = LogitsMode::kLast,
                                   .stop = options.stop,
                                   .progress =
                                       [&](int64_t tokens) {
                                         if (options.prefill_progress) {
                                           options.prefill_progress(tokens);
                                         }
                                         return true;
                                       }},
                                  [&](int64_t, std::span<const float> rows) {
                                    logits = rows;
                                    return Status();
                                  });
  result.prefill_seconds = seconds_since(begin);
  result.prefill_experts = engine.expert_stats() - before;
  if (!read.ok() && read.error().code() == ErrorCode::kCancelled) {
    result.reason = FinishReason::kCancelled;
    return {};
  }
  MF_RETURN_IF_ERROR(read);
  result.prompt_tokens = static_cast<int64_t>(prompt.size());
  TextOut out(tokenizer, options, sink);
  Generation generation(engine, sequence, sampler, options);
  // The last token's logits would not be used.
  return decode(generation, engine, logits, LastToken::kLeaveOut, out, result);
}

Result<GenerateResult> continue_text(Engine& engine, const Tokenizer& tokenizer, Sequence& sequence,
                                     Sampler& sampler, std::vector<float>& logits,
                                     const GenerateOptions& options, const TextSink& sink) {
  GenerateResult result;
  TextOut out(tokenizer, options, sink);
  Generation generation(engine, sequence, sampler, options);
  const std::vector<float> first = std::move(logits);
  logits.clear();
  std::span<const float> last = first;
  MF_RETURN_IF_ERROR(decode(generation, engine, last, LastToken::kEvaluate, out, result));
  logits.assign(last.begin(), last.end());
  return result;
}

}  // namespace moeflux
