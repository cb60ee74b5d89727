#include "chat/decoding.h"

#include <utility>

#include "base/check.h"
#include "chat/session.h"

namespace moeflux {

Result<std::unique_ptr<Decoding>> Decoding::start(Session& session, DecodingOptions options,
                                                  TokenSink sink) {
  MF_ASSIGN_OR_RETURN(Sampler sampler, session.make_sampler(options.ignore_model_stop_tokens));
  TextLimits limits{
      .tokens_max = options.tokens_max,
      .places = session.engine().memory_plan().context_length - session.sequence_->length(),
      .stop_tokens = std::move(options.stop_tokens),
      .tokens_min = options.tokens_min,
      .allowed_tokens = std::move(options.allowed_tokens),
      .top_logprobs = options.top_logprobs,
      .sampled_logprobs = options.sampled_logprobs,
      .skip_special = options.skip_special,
      .follows_apart = options.follows_apart};
  if (!options.ignore_model_stop_tokens) {
    const std::vector<TokenId>& more = session.model_->text.defaults.stop_tokens;
    limits.stop_tokens.insert(limits.stop_tokens.end(), more.begin(), more.end());
  }
  return std::unique_ptr<Decoding>(new Decoding(session, std::move(sampler), std::move(limits),
                                                std::move(sink), std::move(options.constrained)));
}

Decoding::Decoding(Session& session, Sampler sampler, TextLimits limits, TokenSink sink,
                   std::shared_ptr<ConstrainedText> constrained)
    : session_(nullptr),
      sampler_(std::move(sampler)),
      text_(session.model_->text.tokenizer.ok() ? &*session.model_->text.tokenizer : nullptr,
            sampler_, std::move(limits), std::move(sink), std::move(constrained)) {
  move_to(session);
}

void Decoding::move_to(Session& session) {
  session_ = &session;
  first_ = std::exchange(session.extra_.logits, {});
  last_ = {.all = first_};
  pending_.reset();
}

Status Decoding::step() {
  MF_RETURN_IF_ERROR(eval_pending());
  return draw();
}

Status Decoding::step_with(const LastLogits& logits) {
  MF_CHECK(pending_);
  last_ = logits;
  pending_.reset();
  ++steps_;
  return draw();
}

BestLogits Decoding::best_needed() const {
  return text_.best_needed(session_->engine().spec().vocab_size);
}

Status Decoding::draw() {
  MF_ASSIGN_OR_RETURN(const bool needs_all, text_.needs_all(last_));
  if (needs_all) {
    last_ = {};
    MF_ASSIGN_OR_RETURN(last_.all, session_->engine().last_logits());
  }
  MF_ASSIGN_OR_RETURN(const std::optional<TokenId> token, text_.next(last_));
  const bool has_place =
      session_->sequence_->length() < session_->engine().memory_plan().context_length;
  if (has_place) pending_ = token;
  return {};
}

// The best logits alone are read, where they are enough.
Status Decoding::eval_pending() {
  if (!pending_) return {};
  const TokenId token = *pending_;
  last_ = {};
  StepItem item{.sequence = session_->sequence_.get(),
                .tokens = {&token, 1},
                .options = {.best = best_needed(), .phase = StepPhase::kDecode},
                .sink =
                    [this](int64_t, std::span<const float> row) {
                      last_.all = row;
                      return Status();
                    },
                .best = std::move(best_)};
  session_->engine().eval_step(std::span(&item, 1));
  best_ = std::move(item.best);
  MF_RETURN_IF_ERROR(item.outcome);
  if (item.options.best.count > 0) last_ = {.best = best_, .best_of = item.options.best.of};
  pending_.reset();
  ++steps_;
  return {};
}

Status Decoding::finish(bool keep_last_token) {
  session_->extra_.sampler.progress = sampler_.progress();
  if (keep_last_token) {
    MF_RETURN_IF_ERROR(eval_pending());
    if (!last_.best.empty()) {
      MF_ASSIGN_OR_RETURN(last_.all, session_->engine().last_logits());
    }
  }
  session_->extra_.logits.assign(last_.all.begin(), last_.all.end());
  return {};
}

}  // namespace moeflux
