#include "chat/constrained_text.h"

#include <algorithm>
#include <utility>

namespace moeflux {

std::shared_ptr<ConstrainedText> ConstrainedText::make(
    std::shared_ptr<const Constraint> constraint) {
  return std::shared_ptr<ConstrainedText>(new ConstrainedText(std::move(constraint)));
}

Status ConstrainedText::become(std::span<const TokenId> tokens) {
  MF_RETURN_IF_ERROR(begin());
  const auto differs = std::ranges::mismatch(tokens_, tokens).in1;
  const auto lost = tokens_.end() - differs;
  if (lost > 0) MF_RETURN_IF_ERROR(matcher_->rollback(lost));
  tokens_.erase(differs, tokens_.end());
  for (const TokenId token : tokens.subspan(tokens_.size())) MF_RETURN_IF_ERROR(push(token));
  return {};
}

Status ConstrainedText::push(TokenId token) {
  MF_RETURN_IF_ERROR(begin());
  MF_RETURN_IF_ERROR(matcher_->consume(token));
  tokens_.push_back(token);
  return {};
}

Status ConstrainedText::advance(std::optional<TokenId> token) {
  MF_RETURN_IF_ERROR(begin());
  if (token) MF_RETURN_IF_ERROR(push(*token));
  const Result<Matcher::Next> next = matcher_->next();
  return next.ok() ? Status() : next.error();
}

Result<ConstrainedText::Allowed> ConstrainedText::allowed(std::span<const TokenId> stop_tokens) {
  MF_RETURN_IF_ERROR(begin());
  MF_ASSIGN_OR_RETURN(const Matcher::Next next, matcher_->next());
  words_.assign(next.mask.words.begin(), next.mask.words.end());
  bool has_stop = false;
  for (const TokenId token : stop_tokens) {
    const auto word = static_cast<size_t>(token) / 32;
    if (token < 0 || word >= words_.size()) continue;
    const uint32_t bit = uint32_t{1} << (static_cast<uint32_t>(token) % 32);
    words_[word] = next.may_end ? words_[word] | bit : words_[word] & ~bit;
    has_stop = true;
  }
  return Allowed{.mask = {words_}, .is_over = next.must_end && !has_stop};
}

void ConstrainedText::stop() {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  if (matcher_ != nullptr) matcher_->stop();
}

Status ConstrainedText::begin() {
  if (matcher_ != nullptr) return {};
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Matcher> matcher, constraint_->start());
  const std::lock_guard lock(mutex_);
  matcher_ = std::move(matcher);
  if (is_stopped_) matcher_->stop();
  return {};
}

}  // namespace moeflux
