// Sequences of moeflux.h: create, evaluate, sample, generate.
#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "library/options.h"
#include "library/outcome.h"
#include "library/sequence.h"

namespace moeflux {
namespace {

Status check_tokens(const char* name, const int32_t* tokens, size_t count) {
  if (tokens != nullptr || count == 0) return {};
  return null_argument(name);
}

Outcome eval(mf_sequence& sequence, std::span<const TokenId> tokens,
             const mf_eval_options& options) {
  const bool all = options.all_positions != 0;
  const auto vocab_size = static_cast<size_t>(sequence.open->engine->spec().vocab_size);
  const size_t wanted = (all ? tokens.size() : 1) * vocab_size;
  if (options.logits != nullptr && options.logits_count != wanted) {
    const Error error =
        make_error(ErrorCode::kInvalidArgument, "logits_count is {}, expected {}: {} rows of {}",
                   options.logits_count, wanted, wanted / vocab_size, vocab_size);
    return options.logits_count < wanted ? Outcome(MF_ERROR_BUFFER_TOO_SMALL, error.message())
                                         : Outcome(error);
  }
  float* out = options.logits;
  const LogitsSink sink = [&](int64_t first, std::span<const float> rows) -> Status {
    if (out != nullptr) out = std::copy(rows.begin(), rows.end(), out);
    if (options.on_logits == nullptr || options.on_logits(options.user_data, first, rows.data(),
                                                          rows.size() / vocab_size, vocab_size)) {
      return {};
    }
    return make_error(ErrorCode::kCancelled, "stopped by the callback for logits");
  };
  TokenProgress progress;
  if (options.on_progress != nullptr) {
    progress = [&](int64_t done, int64_t total) {
      return options.on_progress(options.user_data, static_cast<uint64_t>(done),
                                 static_cast<uint64_t>(total)) != 0;
    };
  }
  EvalTimer timer(sequence);
  return evaluate(sequence, tokens, all ? LogitsMode::kAll : LogitsMode::kLast, progress, sink,
                  timer);
}

mf_finish_reason to_c(FinishReason reason) {
  switch (reason) {
    case FinishReason::kTokensMax:
      return MF_FINISH_TOKENS_MAX;
    case FinishReason::kStopToken:
      return MF_FINISH_STOP_TOKEN;
    case FinishReason::kStopString:
      return MF_FINISH_STOP_STRING;
    case FinishReason::kContextFull:
      return MF_FINISH_CONTEXT_FULL;
    case FinishReason::kCancelled:
      return MF_FINISH_CANCELLED;
  }
  __builtin_unreachable();
}

// False when the caller stopped it.
Result<bool> prefill(mf_sequence& sequence, std::span<const TokenId> prompt,
                     const mf_generate_options& options, mf_generate_result& result) {
  if (prompt.empty()) {
    MF_RETURN_IF_ERROR(ensure_logits(sequence));
    return true;
  }
  bool stopped = false;
  TokenProgress progress;
  if (options.on_progress != nullptr) {
    progress = [&](int64_t done, int64_t total) {
      stopped = options.on_progress(options.user_data, static_cast<uint64_t>(done),
                                    static_cast<uint64_t>(total)) == 0;
      return !stopped;
    };
  }
  const int64_t before = sequence.sequence->length();
  EvalTimer timer(sequence);
  const Status done = evaluate(sequence, prompt, LogitsMode::kLast, progress, {}, timer);
  result.prompt_tokens = sequence.sequence->length() - before;
  result.prefill_us = timer.elapsed_us();
  if (!done.ok() && !stopped) return done.error();
  return !stopped;
}

Status decode(mf_sequence& sequence, const GenerateOptions& options, const TextSink& sink,
              mf_generate_result& result) {
  MF_ASSIGN_OR_RETURN(Sampler sampler, make_sampler(sequence, options.sampler));
  EvalTimer timer(sequence);
  const Result<GenerateResult> done = continue_text(
      *sequence.open->engine, *sequence.open->tokenizer, *sequence.sequence, sampler,
      sequence.logits, options,
      [&](std::string_view text) { return timer.outside([&] { return sink(text); }); });
  sequence.sampler.draws_count = sampler.draws_count();
  if (!done.ok()) return done.error();
  result.finish_reason = to_c(done->reason);
  result.generated_tokens = done->generated_tokens;
  result.decode_us = timer.elapsed_us();
  return {};
}

Outcome generate_text(mf_sequence& sequence, std::span<const TokenId> prompt,
                      const mf_generate_options& options, mf_generate_result& result) {
  const OpenModel& open = *sequence.open;
  if (open.tokenizer_error) return *open.tokenizer_error;
  MF_ASSIGN_OR_RETURN(GenerateOptions generate,
                      generate_options(options, open.defaults.stop_tokens));
  generate.sampler = with_vocab_limit(open, sequence.sampler.options);
  if ((options.flags & MF_GENERATE_IGNORE_STOP_TOKENS) != 0) {
    for (const TokenId token : open.defaults.stop_tokens) {
      generate.sampler.logit_bias.push_back({token, -INFINITY});
    }
  }
  result.finish_reason = MF_FINISH_CANCELLED;
  MF_ASSIGN_OR_RETURN(const bool goes_on, prefill(sequence, prompt, options, result));
  if (!goes_on) return {};
  return decode(
      sequence, generate,
      [&](std::string_view text) {
        return options.on_text == nullptr ||
               options.on_text(options.user_data, text.data(), text.size()) != 0;
      },
      result);
}

}  // namespace
}  // namespace moeflux

using moeflux::guarded;
using moeflux::null_argument;
using moeflux::Outcome;
using moeflux::read_struct;

mf_code mf_sequence_create(mf_model* model, mf_sequence** sequence, mf_error* error) noexcept {
  if (sequence != nullptr) *sequence = nullptr;
  if (model == nullptr) return report(Outcome(null_argument("model")), error);
  return in_turn(*model->open, error, [&]() -> Outcome {
    if (sequence == nullptr) return null_argument("sequence");
    MF_ASSIGN_OR_RETURN(auto created, model->open->engine->create_sequence());
    *sequence = new mf_sequence{model->open,
                                std::move(created),
                                {.options = model->open->defaults.sampler, .draws_count = 0},
                                {},
                                {}};
    return {};
  });
}

void mf_sequence_free(mf_sequence* sequence) noexcept {
  if (sequence == nullptr) return;
  sequence->open->retire(std::move(sequence->sequence));
  delete sequence;
}

mf_code mf_sequence_position(const mf_sequence* sequence, int64_t* position,
                             mf_error* error) noexcept {
  if (sequence == nullptr) return report(Outcome(null_argument("sequence")), error);
  return in_turn(*sequence->open, error, [&]() -> Outcome {
    if (position == nullptr) return null_argument("position");
    *position = sequence->sequence->length();
    return {};
  });
}

mf_code mf_sequence_tokens(const mf_sequence* sequence, int32_t* tokens, size_t capacity,
                           size_t* count, mf_error* error) noexcept {
  if (sequence == nullptr) return report(Outcome(null_argument("sequence")), error);
  return in_turn(*sequence->open, error, [&]() -> Outcome {
    if (count == nullptr) return null_argument("count");
    if (tokens == nullptr && capacity > 0) return null_argument("tokens");
    const std::span<const moeflux::TokenId> all = sequence->sequence->tokens();
    std::copy_n(all.begin(), std::min(capacity, all.size()), tokens);
    return moeflux::fit("tokens", all.size(), capacity, count);
  });
}

mf_code mf_sequence_eval(mf_sequence* sequence, const int32_t* tokens, size_t count,
                         const mf_eval_options* options, mf_error* error) noexcept {
  if (sequence == nullptr) return report(Outcome(null_argument("sequence")), error);
  return in_turn(*sequence->open, error, [&]() -> Outcome {
    MF_RETURN_IF_ERROR(moeflux::check_tokens("tokens", tokens, count));
    MF_ASSIGN_OR_RETURN(const mf_eval_options read, read_struct("mf_eval_options", options));
    return moeflux::eval(*sequence, {tokens, count}, read);
  });
}

mf_code mf_sequence_logits(mf_sequence* sequence, float* logits, size_t count,
                           mf_error* error) noexcept {
  if (sequence == nullptr) return report(Outcome(null_argument("sequence")), error);
  return in_turn(*sequence->open, error, [&]() -> Outcome {
    if (logits == nullptr) return null_argument("logits");
    const auto wanted = static_cast<size_t>(sequence->open->engine->spec().vocab_size);
    size_t stored = 0;
    if (count < wanted) return moeflux::fit("logits", wanted, count, &stored);
    MF_RETURN_IF_ERROR(moeflux::ensure_logits(*sequence));
    std::copy(sequence->logits.begin(), sequence->logits.end(), logits);
    return {};
  });
}

mf_code mf_sequence_set_sampler(mf_sequence* sequence, const mf_sampler_options* options,
                                mf_error* error) noexcept {
  if (sequence == nullptr) return report(Outcome(null_argument("sequence")), error);
  return in_turn(*sequence->open, error, [&]() -> Outcome {
    const moeflux::OpenModel& open = *sequence->open;
    moeflux::SamplerState sampler{.options = open.defaults.sampler, .draws_count = 0};
    if (options != nullptr) {
      MF_ASSIGN_OR_RETURN(
          const mf_sampler_options read,
          read_struct("mf_sampler_options", options, moeflux::to_c(open.defaults.sampler)));
      MF_ASSIGN_OR_RETURN(sampler.options,
                          moeflux::sampler_options(read, open.engine->spec().vocab_size));
    }
    sequence->sampler = std::move(sampler);
    return {};
  });
}

mf_code mf_sequence_sample(mf_sequence* sequence, int32_t* token, mf_error* error) noexcept {
  if (sequence == nullptr) return report(Outcome(null_argument("sequence")), error);
  return in_turn(*sequence->open, error, [&]() -> Outcome {
    if (token == nullptr) return null_argument("token");
    MF_RETURN_IF_ERROR(moeflux::ensure_logits(*sequence));
    MF_ASSIGN_OR_RETURN(
        moeflux::Sampler sampler,
        moeflux::make_sampler(
            *sequence, moeflux::with_vocab_limit(*sequence->open, sequence->sampler.options)));
    MF_ASSIGN_OR_RETURN(*token, sampler.sample(sequence->logits));
    sequence->sampler.draws_count = sampler.draws_count();
    return {};
  });
}

mf_code mf_sequence_generate(mf_sequence* sequence, const int32_t* prompt, size_t count,
                             const mf_generate_options* options, mf_generate_result* result,
                             mf_error* error) noexcept {
  if (sequence == nullptr) return report(Outcome(null_argument("sequence")), error);
  return in_turn(*sequence->open, error, [&]() -> Outcome {
    MF_RETURN_IF_ERROR(moeflux::check_tokens("prompt", prompt, count));
    MF_ASSIGN_OR_RETURN(const mf_generate_options read,
                        read_struct("mf_generate_options", options));
    mf_generate_result measured = MF_OPTIONS(measured);
    if (result != nullptr) {
      MF_RETURN_IF_ERROR(moeflux::write_struct("mf_generate_result", measured, result));
    }
    const Outcome done = moeflux::generate_text(*sequence, {prompt, count}, read, measured);
    if (result != nullptr) {
      MF_RETURN_IF_ERROR(moeflux::write_struct("mf_generate_result", measured, result));
    }
    return done;
  });
}
