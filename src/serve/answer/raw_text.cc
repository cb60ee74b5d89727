#include "serve/answer/raw_text.h"

#include <utility>

namespace moeflux::serve {

RawText::RawText(const Tokenizer& tokenizer, const RawRequest& request, std::vector<TokenId> prompt,
                 std::shared_ptr<Choices> choices, size_t choice)
    : ChoiceReceiver(std::move(choices), choice),
      tokenizer_(tokenizer),
      wants_scores_(request.logprobs >= 0),
      wants_tokens_(wants_scores_ || request.tells_tokens),
      echoes_(request.echo),
      skips_special_(request.skip_special),
      prompt_(std::move(prompt)),
      tokens_min_(request.generation.tokens_min),
      stop_(request.generation.stop, request.generation.includes_stop),
      indent_(request.indent_min) {}

void RawText::on_prompt_logprobs(std::span<const TokenLogprobs> scores) {
  prompt_scores_.insert(prompt_scores_.end(), scores.begin(), scores.end());
}

// The prompt, once, before all else. Its first token has no score.
void RawText::echo(AnswerDelta& delta) {
  if (!std::exchange(echoes_, false)) return;
  delta.text = tokenizer_.decode(prompt_, {.skip_special = true});
  for (size_t i = 0; wants_scores_ && i < prompt_.size(); ++i) {
    const bool is_scored = i > 0 && i - 1 < prompt_scores_.size();
    delta.scores.push_back({.token = prompt_[i],
                            .logprobs = is_scored ? prompt_scores_[i - 1] : TokenLogprobs{},
                            .has_score = is_scored});
  }
}

Verdict RawText::on_token(const DrawnToken& token) {
  answer_.tokens.push_back(token.token);
  AnswerDelta delta;
  echo(delta);
  const bool is_left_out = skips_special_ && tokenizer_.is_special(token.token);
  const bool is_exempt = ++tokens_ <= tokens_min_;
  if (!is_left_out) {
    delta.text += indent_.push(is_exempt ? stop_.push_exempt(token.text) : stop_.push(token.text));
  }
  if (wants_tokens_ && !token.is_stop) {
    const bool is_scored = token.logprobs != nullptr;
    delta.scores.push_back({.token = token.token,
                            .logprobs = is_scored ? *token.logprobs : TokenLogprobs{},
                            .has_score = is_scored});
  }
  return {.stop = stop_.stopped() || indent_.stopped(), .park = tell_and_keep(std::move(delta))};
}

void RawText::on_done(const TextStatistics& statistics) {
  AnswerDelta delta;
  echo(delta);
  if (!stop_.stopped()) delta.text += indent_.push(stop_.finish());
  tell_and_keep(std::move(delta));
  if (!indent_.stopped()) answer_.stopped_by = stop_.stopped_by();
  end(std::move(answer_), statistics);
}

bool RawText::tell_and_keep(AnswerDelta delta) {
  if (delta.text.empty() && delta.scores.empty()) return false;
  answer_.content += delta.text;
  answer_.scores.insert(answer_.scores.end(), delta.scores.begin(), delta.scores.end());
  return tell(std::move(delta));
}

}  // namespace moeflux::serve
