#include "chat/session.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/format.h"
#include "chat/eval_timer.h"
#include "chat/stop_strings.h"

namespace moeflux {

Status check_sampler(const SamplerOptions& options, int64_t vocab_size) {
  MF_RETURN_IF_ERROR(validate(options));
  for (const LogitBias& bias : options.logit_bias) {
    if (bias.token < vocab_size) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "logit_bias: token {} is outside the vocabulary of {}", bias.token,
                      vocab_size);
  }
  return {};
}

Session::Session(std::shared_ptr<OpenModel> model, std::unique_ptr<Sequence> sequence,
                 SessionExtra extra, int64_t turn_timeout_ms)
    : model_(std::move(model)),
      sequence_(std::move(sequence)),
      extra_(std::move(extra)),
      turn_timeout_ms_(turn_timeout_ms) {
  publish_position();
}

Session::~Session() { model_->turns.retire(std::move(sequence_)); }

Result<std::shared_ptr<Session>> Session::create(std::shared_ptr<OpenModel> model) {
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Sequence> sequence, model->engine->create_sequence());
  SessionExtra extra{.sampler = {.options = model->text.defaults.sampler}, .logits = {}};
  const int64_t timeout_ms = model->turn_timeout_ms;
  return std::shared_ptr<Session>(
      new Session(std::move(model), std::move(sequence), std::move(extra), timeout_ms));
}

Status Session::eval(std::span<const TokenId> tokens, const EvalOptions& options,
                     const LogitsSink& sink) {
  EvalTimer timer(*model_, *sequence_, position_);
  return eval_timed(tokens, options, sink, timer);
}

Status Session::eval_timed(std::span<const TokenId> tokens, const EvalOptions& options,
                           const LogitsSink& sink, EvalTimer& timer) {
  const int64_t before = sequence_->length();
  std::vector<float> known = std::exchange(extra_.logits, {});  // a callback may throw
  EvalOptions publishing = options;
  publishing.progress = [&](int64_t done) {
    return timer.outside(
        [&] { return (!options.progress || options.progress(done)) && !model_->is_aborted(); });
  };
  std::vector<float> last;
  const Status done = engine().eval(
      *sequence_, tokens, publishing, [&](int64_t first, std::span<const float> rows) {
        const auto row = rows.last(static_cast<size_t>(engine().spec().vocab_size));
        last.assign(row.begin(), row.end());
        return sink ? timer.outside([&] { return sink(first, rows); }) : Status();
      });
  if (done.ok()) {
    extra_.logits = std::move(last);
  } else if (sequence_->length() == before) {
    extra_.logits = std::move(known);
  }
  return done;
}

Result<std::span<const float>> Session::logits(const std::stop_token& stop) {
  if (!extra_.logits.empty()) return std::span<const float>(extra_.logits);
  if (tokens().empty()) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "the sequence is empty, there is no last token; evaluate a prompt first");
  }
  const TokenId last = tokens().back();
  MF_RETURN_IF_ERROR(engine().truncate(*sequence_, sequence_->length() - 1, stop, goes_on()));
  // One token, which nothing stops: without it the sequence would not be what it was.
  MF_RETURN_IF_ERROR(eval({&last, 1}, {.phase = StepPhase::kDecode}));
  return std::span<const float>(extra_.logits);
}

Status Session::set_sampler(SamplerOptions options) {
  MF_RETURN_IF_ERROR(check_sampler(options, engine().spec().vocab_size));
  extra_.sampler = {.options = std::move(options)};
  return {};
}

Status Session::set_constraint(OutputConstraint constraint) {
  SessionConstraint set{.stated = std::move(constraint), .begin = sequence_->length()};
  if (set.stated.kind != ConstraintKind::kNone) {
    MF_ASSIGN_OR_RETURN(set.compiled, model_->compile(set.stated));
  }
  extra_.constraint = std::move(set);
  return {};
}

// The matcher is replayed from the tokens since the constraint's begin, as far as it is not there.
Result<std::shared_ptr<ConstrainedText>> Session::constrained_text() {
  const SessionConstraint& set = extra_.constraint;
  if (set.compiled == nullptr) return std::shared_ptr<ConstrainedText>();
  if (constrained_ == nullptr || constrained_->constraint() != set.compiled) {
    constrained_ = ConstrainedText::make(set.compiled);
  }
  const int64_t begin = std::min(set.begin, sequence_->length());
  MF_RETURN_IF_ERROR(constrained_->become(tokens().subspan(static_cast<size_t>(begin))));
  return constrained_;
}

EvalTimer Session::timer() { return EvalTimer(*model_, *sequence_, position_); }

Result<Sampler> Session::make_sampler(bool ignores_model_stop_tokens) {
  SamplerOptions options = extra_.sampler.options;
  // The model's logits can be wider than its tokenizer's vocabulary.
  const ModelText& text = model_->text;
  if (text.tokenizer.ok()) options.vocab_limit = text.tokenizer->vocab_size();
  if (ignores_model_stop_tokens) {
    for (const TokenId token : text.defaults.stop_tokens) {
      options.logit_bias.push_back({token, -INFINITY});
    }
  }
  if (text.tokenizer.ok() && uses_dry(options)) {
    MF_ASSIGN_OR_RETURN(options.dry_breakers,
                        dry_breakers_.of(options.dry_sequence_breakers, *text.tokenizer));
  }
  MF_ASSIGN_OR_RETURN(Sampler sampler, Sampler::create(std::move(options)));
  sampler.set_progress(extra_.sampler.progress);
  for (const TokenId token : tokens()) sampler.accept(token);
  return sampler;
}

Result<TokenId> Session::sample(const std::stop_token& stop) {
  MF_ASSIGN_OR_RETURN(const std::span<const float> last, logits(stop));
  MF_ASSIGN_OR_RETURN(Sampler sampler, make_sampler(false));
  MF_ASSIGN_OR_RETURN(const auto constrained, constrained_text());
  ConstrainedText::Allowed allowed;
  if (constrained != nullptr) {
    MF_ASSIGN_OR_RETURN(allowed, constrained->allowed(model_->text.defaults.stop_tokens));
  }
  MF_ASSIGN_OR_RETURN(const TokenId token,
                      sampler.sample(last, constrained != nullptr ? &allowed.mask : nullptr));
  extra_.sampler.progress = sampler.progress();
  return token;
}

Status Session::generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                         const TextSink& sink, GenerateResult& result) {
  result = {.reason = FinishReason::kCancelled};
  if (!model_->text.tokenizer.ok()) return model_->text.tokenizer.error();
  const Status read = prefill(prompt, options, result);
  if (!read.ok() && read.error().code() == ErrorCode::kCancelled) return {};
  MF_RETURN_IF_ERROR(read);
  if (!prompt.empty()) extra_.constraint.begin = sequence_->length();
  return decode(options, sink, result);
}

// Fails with kCancelled when it was stopped, after the last chunk too.
Status Session::prefill(std::span<const TokenId> prompt, const GenerateOptions& options,
                        GenerateResult& result) {
  if (prompt.empty()) {
    MF_RETURN_IF_ERROR(logits(options.stop));
    return {};
  }
  bool is_wanted = true;
  const auto progress = [&](int64_t tokens) {
    is_wanted = !options.prefill_progress || options.prefill_progress(tokens);
    return is_wanted;
  };
  const int64_t before = sequence_->length();
  const ExpertStats experts_before = engine().expert_stats();
  EvalTimer timer(*model_, *sequence_, position_);
  const Status done = eval_timed(
      prompt, {.logits = LogitsMode::kLast, .stop = options.stop, .progress = progress}, {}, timer);
  result.prompt_tokens = sequence_->length() - before;
  result.prefill_seconds = timer.elapsed_seconds();
  result.prefill_experts = engine().expert_stats() - experts_before;
  MF_RETURN_IF_ERROR(done);
  if (is_wanted && !options.stop.stop_requested()) return {};
  return make_error(ErrorCode::kCancelled, "stopped");
}

Status Session::decode(const GenerateOptions& options, const TextSink& sink,
                       GenerateResult& result) {
  const ExpertStats experts_before = engine().expert_stats();
  EvalTimer timer(*model_, *sequence_, position_);
  StopStrings stop_strings(options.stop_strings);
  const auto tell = [&](std::string_view text) {
    return timer.outside([&] { return sink(text); });
  };
  std::unique_ptr<Decoding> decoding;
  const TokenSink told = [&](const DrawnToken& drawn) -> std::optional<FinishReason> {
    if (drawn.is_stop) return std::nullopt;
    if (options.force) decoding->force(options.force(drawn));
    const bool is_wanted = tell(stop_strings.push(drawn.text));
    if (!is_wanted || options.stop.stop_requested() || model_->is_aborted()) {
      return FinishReason::kCancelled;
    }
    if (stop_strings.stopped()) return FinishReason::kStopString;
    return std::nullopt;
  };
  MF_ASSIGN_OR_RETURN(auto constrained, constrained_text());
  MF_ASSIGN_OR_RETURN(decoding,
                      Decoding::start(*this,
                                      {.tokens_max = options.tokens_max,
                                       .stop_tokens = options.stop_tokens,
                                       .ignore_model_stop_tokens = options.ignore_model_stop_tokens,
                                       .constrained = std::move(constrained)},
                                      told));
  const Status done = run_steps(*decoding, options.keep_last_token);
  if (done.ok()) (void)tell(stop_strings.push(decoding->rest()) + stop_strings.finish());
  if (decoding->end()) result.reason = *decoding->end();
  result.generated_tokens = decoding->generated_tokens();
  result.decode_steps = decoding->steps();
  result.drafts = decoding->drafts();
  result.decode_seconds = timer.elapsed_seconds();
  result.decode_experts = engine().expert_stats() - experts_before;
  return done;
}

Status Session::run_steps(Decoding& decoding, bool keep_last_token) {
  Status done;
  while (done.ok() && !decoding.end()) done = decoding.step();
  // A failed text keeps its logits, if they are known, and evaluates nothing more.
  const Status finished = decoding.finish(done.ok() && keep_last_token);
  return done.ok() ? finished : done;
}

}  // namespace moeflux
