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

Outcome eval(mf_sequence& sequence, std::span<const TokenId> tokens, const mf_eval_options& options,
             std::stop_token stop) {
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
  return evaluate(sequence, tokens,
                  {.logits = all ? LogitsMode::kAll : LogitsMode::kLast, .stop = std::move(stop)},
                  progress, sink, timer);
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
                     const mf_generate_options& options, const std::stop_token& stop,
                     mf_generate_result& result) {
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
  const Status done =
      evaluate(sequence, prompt, {.logits = LogitsMode::kLast, .stop = stop}, progress, {}, timer);
  result.prompt_tokens = sequence.sequence->length() - before;
  result.prefill_us = timer.elapsed_us();
  if (!done.ok() && done.error().code() != ErrorCode::kCancelled) return done.error();
  return done.ok() && !stopped && !stop.stop_requested();
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
                      const mf_generate_options& options, const std::stop_token& stop,
                      mf_generate_result& result) {
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
  generate.stop = stop;
  result.finish_reason = MF_FINISH_CANCELLED;
  if (prompt.empty()) {
    const Status known = ensure_logits(sequence, stop);
    if (!known.ok() && known.error().code() == ErrorCode::kCancelled) return {};
    MF_RETURN_IF_ERROR(known);
  } else {
    MF_ASSIGN_OR_RETURN(const bool goes_on, prefill(sequence, prompt, options, stop, result));
    if (!goes_on) return {};
  }
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
using moeflux::in_turn;
using moeflux::null_argument;
using moeflux::Outcome;
using moeflux::read_struct;

mf_code mf_sequence_create(mf_model* model, mf_sequence** sequence, mf_error* error) noexcept {
  if (sequence != nullptr) *sequence = nullptr;
  if (model == nullptr) return report(Outcome(null_argument("model")), error);
  const std::shared_ptr<moeflux::OpenModel> open = model->open;  // the handle may be closed
  const auto create = [&](const std::stop_token&) -> Outcome {
    if (sequence == nullptr) return null_argument("sequence");
    MF_ASSIGN_OR_RETURN(auto created, open->engine->create_sequence());
    *sequence = new mf_sequence(open, std::move(created),
                                {.options = open->defaults.sampler, .draws_count = 0},
                                open->turn_timeout_ms);
    return {};
  };
  return in_turn(open, nullptr, open->turn_timeout_ms, error, create, moeflux::cancelled_waiting);
}

void mf_sequence_free(mf_sequence* sequence) noexcept {
  if (sequence == nullptr) return;
  const std::shared_ptr<moeflux::OpenModel> open = sequence->open;
  open->turns.retire(std::unique_ptr<mf_sequence>(sequence));
}

void mf_sequence_cancel(mf_sequence* sequence) noexcept {
  if (sequence != nullptr) sequence->open->turns.cancel(*sequence);
}

mf_code mf_sequence_set_turn_timeout(mf_sequence* sequence, int64_t timeout_ms,
                                     mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    if (sequence == nullptr) return null_argument("sequence");
    MF_RETURN_IF_ERROR(moeflux::check_turn_timeout(timeout_ms));
    sequence->turn_timeout_ms = timeout_ms;
    return {};
  });
}

mf_code mf_sequence_position(const mf_sequence* sequence, int64_t* position,
                             mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    if (sequence == nullptr) return null_argument("sequence");
    if (position == nullptr) return null_argument("position");
    *position = sequence->position;
    return {};
  });
}

mf_code mf_sequence_tokens(const mf_sequence* sequence, int32_t* tokens, size_t capacity,
                           size_t* count, mf_error* error) noexcept {
  return in_turn(sequence, error, [&]() -> Outcome {
    if (count == nullptr) return null_argument("count");
    if (tokens == nullptr && capacity > 0) return null_argument("tokens");
    const std::span<const moeflux::TokenId> all = sequence->sequence->tokens();
    std::copy_n(all.begin(), std::min(capacity, all.size()), tokens);
    return moeflux::fit("tokens", all.size(), capacity, count);
  });
}

mf_code mf_sequence_eval(mf_sequence* sequence, const int32_t* tokens, size_t count,
                         const mf_eval_options* options, mf_error* error) noexcept {
  return in_turn(sequence, error, [&](std::stop_token stop) -> Outcome {
    MF_RETURN_IF_ERROR(moeflux::check_tokens("tokens", tokens, count));
    MF_ASSIGN_OR_RETURN(const mf_eval_options read, read_struct("mf_eval_options", options));
    return moeflux::eval(*sequence, {tokens, count}, read, std::move(stop));
  });
}

mf_code mf_sequence_logits(mf_sequence* sequence, float* logits, size_t count,
                           mf_error* error) noexcept {
  return in_turn(sequence, error, [&](std::stop_token stop) -> Outcome {
    if (logits == nullptr) return null_argument("logits");
    const auto wanted = static_cast<size_t>(sequence->open->engine->spec().vocab_size);
    size_t stored = 0;
    if (count < wanted) return moeflux::fit("logits", wanted, count, &stored);
    MF_RETURN_IF_ERROR(moeflux::ensure_logits(*sequence, std::move(stop)));
    std::copy(sequence->logits.begin(), sequence->logits.end(), logits);
    return {};
  });
}

mf_code mf_sequence_set_sampler(mf_sequence* sequence, const mf_sampler_options* options,
                                mf_error* error) noexcept {
  return in_turn(sequence, error, [&]() -> Outcome {
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
  return in_turn(sequence, error, [&](std::stop_token stop) -> Outcome {
    if (token == nullptr) return null_argument("token");
    MF_RETURN_IF_ERROR(moeflux::ensure_logits(*sequence, std::move(stop)));
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
  mf_generate_result measured = MF_OPTIONS(measured);
  const auto store = [&]() -> moeflux::Status {
    if (result == nullptr) return {};
    return moeflux::write_struct("mf_generate_result", measured, result);
  };
  const auto generate = [&](std::stop_token stop) -> Outcome {
    MF_RETURN_IF_ERROR(moeflux::check_tokens("prompt", prompt, count));
    MF_ASSIGN_OR_RETURN(const mf_generate_options read,
                        read_struct("mf_generate_options", options));
    MF_RETURN_IF_ERROR(store());
    const Outcome done =
        moeflux::generate_text(*sequence, {prompt, count}, read, std::move(stop), measured);
    MF_RETURN_IF_ERROR(store());
    return done;
  };
  return in_turn(sequence, error, generate, [&]() -> Outcome {
    measured.finish_reason = MF_FINISH_CANCELLED;
    return store();
  });
}
