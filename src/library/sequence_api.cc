// Sequences of moeflux.h: create, evaluate, sample, generate.
#include <algorithm>

#include "library/options.h"
#include "library/outcome.h"

namespace moeflux {
namespace {

Outcome eval(Session& session, std::span<const TokenId> tokens, const mf_eval_options& options,
             std::stop_token stop) {
  const bool all = options.all_positions != 0;
  const auto vocab_size = static_cast<size_t>(session.model()->engine->spec().vocab_size);
  const size_t wanted = (all ? tokens.size() : 1) * vocab_size;
  if (options.logits != nullptr && options.logits_count != wanted) {
    const Error error =
        make_error(ErrorCode::kInvalidArgument, "logits_count is {}, expected {}: {} rows of {}",
                   options.logits_count, wanted, wanted / vocab_size, vocab_size);
    return options.logits_count < wanted ? Outcome(MF_ERROR_BUFFER_TOO_SMALL, error.message())
                                         : Outcome(error);
  }
  MF_ASSIGN_OR_RETURN(const StepPhase phase, step_phase(options.phase, tokens.size()));
  float* out = options.logits;
  const LogitsSink sink = [&](int64_t first, std::span<const float> rows) -> Status {
    if (out != nullptr) out = std::copy(rows.begin(), rows.end(), out);
    if (options.on_logits == nullptr || options.on_logits(options.user_data, first, rows.data(),
                                                          rows.size() / vocab_size, vocab_size)) {
      return {};
    }
    return make_error(ErrorCode::kCancelled, "stopped by the callback for logits");
  };
  return session.eval(tokens,
                      {.logits = all ? LogitsMode::kAll : LogitsMode::kLast,
                       .stop = std::move(stop),
                       .progress = token_progress(options, tokens.size()),
                       .phase = phase},
                      sink);
}

Outcome generate(Session& session, std::span<const TokenId> prompt,
                 const mf_generate_options& options, std::stop_token stop,
                 mf_generate_result& measured) {
  MF_ASSIGN_OR_RETURN(GenerateOptions generate, generate_options(options));
  generate.stop = std::move(stop);
  generate.prefill_progress = token_progress(options, prompt.size());
  GenerateResult result;
  const Status done = session.generate(
      prompt, generate,
      [&](std::string_view text) {
        return options.on_text == nullptr ||
               options.on_text(options.user_data, text.data(), text.size()) != 0;
      },
      result);
  measured = to_c(result);
  return done;
}

}  // namespace
}  // namespace moeflux

using moeflux::FinishReason;
using moeflux::GenerateResult;
using moeflux::guarded;
using moeflux::in_turn;
using moeflux::null_argument;
using moeflux::Outcome;
using moeflux::read_struct;
using moeflux::Session;

mf_code mf_sequence_create(mf_model* model, mf_sequence** sequence, mf_error* error) noexcept {
  if (sequence != nullptr) *sequence = nullptr;
  if (model == nullptr) return report(Outcome(null_argument("model")), error);
  const std::shared_ptr<moeflux::OpenModel> open = model->open;  // the handle may be closed
  const auto create = [&](const std::stop_token&) -> Outcome {
    if (sequence == nullptr) return null_argument("sequence");
    MF_ASSIGN_OR_RETURN(auto session, Session::create(open));
    *sequence = new mf_sequence{std::move(session)};
    return {};
  };
  return in_turn(open, nullptr, open->turn_timeout_ms, error, create, moeflux::cancelled_waiting);
}

void mf_sequence_free(mf_sequence* sequence) noexcept {
  mf_sequence_cancel(sequence);
  delete sequence;  // its calls keep the session for as long as they run
}

void mf_sequence_cancel(mf_sequence* sequence) noexcept {
  if (sequence != nullptr) sequence->session->cancel();
}

mf_code mf_sequence_set_turn_timeout(mf_sequence* sequence, int64_t timeout_ms,
                                     mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    if (sequence == nullptr) return null_argument("sequence");
    MF_ASSIGN_OR_RETURN(const int64_t turn_ms, moeflux::turn_timeout(timeout_ms));
    sequence->session->set_turn_timeout_ms(turn_ms);
    return {};
  });
}

mf_code mf_sequence_position(const mf_sequence* sequence, int64_t* position,
                             mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    if (sequence == nullptr) return null_argument("sequence");
    if (position == nullptr) return null_argument("position");
    *position = sequence->session->position();
    return {};
  });
}

mf_code mf_sequence_tokens(const mf_sequence* sequence, int32_t* tokens, size_t capacity,
                           size_t* count, mf_error* error) noexcept {
  return in_turn(sequence, error, [&](Session& session) {
    return moeflux::copy_tokens(session.tokens(), tokens, capacity, count);
  });
}

mf_code mf_sequence_eval(mf_sequence* sequence, const int32_t* tokens, size_t count,
                         const mf_eval_options* options, mf_error* error) noexcept {
  return in_turn(sequence, error, [&](Session& session, std::stop_token stop) -> Outcome {
    if (tokens == nullptr && count > 0) return null_argument("tokens");
    MF_ASSIGN_OR_RETURN(const mf_eval_options read, read_struct("mf_eval_options", options));
    return moeflux::eval(session, {tokens, count}, read, std::move(stop));
  });
}

mf_code mf_sequence_logits(mf_sequence* sequence, float* logits, size_t count,
                           mf_error* error) noexcept {
  return in_turn(sequence, error, [&](Session& session, std::stop_token stop) -> Outcome {
    if (logits == nullptr) return null_argument("logits");
    const auto wanted = static_cast<size_t>(session.model()->engine->spec().vocab_size);
    size_t stored = 0;
    if (count < wanted) return moeflux::fit("logits", wanted, count, &stored);
    MF_ASSIGN_OR_RETURN(const std::span<const float> last, session.logits(stop));
    std::copy(last.begin(), last.end(), logits);
    return {};
  });
}

mf_code mf_sequence_set_sampler(mf_sequence* sequence, const mf_sampler_options* options,
                                mf_error* error) noexcept {
  return in_turn(sequence, error, [&](Session& session) -> Outcome {
    moeflux::SamplerOptions sampler = session.model()->text.defaults.sampler;
    if (options != nullptr) {
      MF_ASSIGN_OR_RETURN(const mf_sampler_options read,
                          read_struct("mf_sampler_options", options, moeflux::to_c(sampler)));
      MF_ASSIGN_OR_RETURN(sampler, moeflux::sampler_options(read));
    }
    return session.set_sampler(std::move(sampler));
  });
}

mf_code mf_sequence_set_constraint(mf_sequence* sequence, int32_t kind, const char* text,
                                   size_t bytes, mf_error* error) noexcept {
  return in_turn(sequence, error, [&](Session& session) -> Outcome {
    if (text == nullptr && bytes > 0) return null_argument("text");
    if (kind < MF_CONSTRAINT_NONE || kind > MF_CONSTRAINT_LARK) {
      return moeflux::make_error(
          moeflux::ErrorCode::kInvalidArgument, "kind is {}, expected {} to {}", kind,
          static_cast<int>(MF_CONSTRAINT_NONE), static_cast<int>(MF_CONSTRAINT_LARK));
    }
    return session.set_constraint({.kind = static_cast<moeflux::ConstraintKind>(kind),
                                   .text = std::string(text == nullptr ? "" : text, bytes),
                                   .source = "the constraint"});
  });
}

mf_code mf_sequence_sample(mf_sequence* sequence, int32_t* token, mf_error* error) noexcept {
  return in_turn(sequence, error, [&](Session& session, std::stop_token stop) -> Outcome {
    if (token == nullptr) return null_argument("token");
    MF_ASSIGN_OR_RETURN(*token, session.sample(stop));
    return {};
  });
}

mf_code mf_sequence_generate(mf_sequence* sequence, const int32_t* prompt, size_t count,
                             const mf_generate_options* options, mf_generate_result* result,
                             mf_error* error) noexcept {
  mf_generate_result measured = moeflux::to_c(GenerateResult{.reason = FinishReason::kCancelled});
  const auto store = [&]() -> moeflux::Status {
    if (result == nullptr) return {};
    return moeflux::write_struct("mf_generate_result", measured, result);
  };
  const auto generate = [&](Session& session, std::stop_token stop) -> Outcome {
    if (prompt == nullptr && count > 0) return null_argument("prompt");
    MF_ASSIGN_OR_RETURN(const mf_generate_options read,
                        read_struct("mf_generate_options", options));
    MF_RETURN_IF_ERROR(store());
    const Outcome done =
        moeflux::generate(session, {prompt, count}, read, std::move(stop), measured);
    MF_RETURN_IF_ERROR(store());
    return done;
  };
  return in_turn(sequence, error, generate, store);
}
