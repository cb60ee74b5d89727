#include "chat/constrained_text.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace moeflux {
namespace {

// Masks of drafts are made in vain where these are wrong: schemas have ten of them in this time,
// and an ambiguous grammar has none.
constexpr std::chrono::microseconds kAheadMax{2000};

bool allows(std::span<const uint32_t> words, TokenId token) {
  const auto word = static_cast<size_t>(token) / 32;
  return token >= 0 && word < words.size() &&
         (words[word] >> (static_cast<uint32_t>(token) % 32) & 1u) != 0;
}

}  // namespace

std::shared_ptr<ConstrainedText> ConstrainedText::make(
    std::shared_ptr<const Constraint> constraint) {
  return std::shared_ptr<ConstrainedText>(new ConstrainedText(std::move(constraint)));
}

Status ConstrainedText::become(std::span<const TokenId> tokens) {
  MF_RETURN_IF_ERROR(begin());
  ahead_.clear();
  steps_.clear();
  followed_ = 0;
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
  const std::vector<TokenId> followed(ahead_.begin(),
                                      ahead_.begin() + static_cast<ptrdiff_t>(followed_));
  ahead_.clear();
  steps_.clear();
  followed_ = 0;
  for (const TokenId one : followed) MF_RETURN_IF_ERROR(push(one));
  if (token) MF_RETURN_IF_ERROR(push(*token));
  const Result<Matcher::Next> next = matcher_->next();
  return next.ok() ? Status() : next.error();
}

Status ConstrainedText::look_ahead(std::span<const TokenId> drafts) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + kAheadMax;
  MF_ASSIGN_OR_RETURN(Step first, step());
  steps_ = {std::move(first)};
  for (const TokenId draft : drafts) {
    if (!allows(steps_.back().words, draft)) break;
    if (!ahead_.empty() && Clock::now() > end) break;
    if (!matcher_->consume(draft).ok()) return start_anew();
    Result<Step> behind = step();
    if (!behind.ok()) return start_anew();
    ahead_.push_back(draft);
    steps_.push_back(std::move(*behind));
  }
  return matcher_->rollback(static_cast<int64_t>(ahead_.size()));
}

// A matcher that has failed fails for good, and it was a draft that it failed on.
Status ConstrainedText::start_anew() {
  {
    const std::lock_guard lock(mutex_);
    matcher_.reset();
  }
  MF_RETURN_IF_ERROR(begin());
  for (const TokenId token : tokens_) MF_RETURN_IF_ERROR(matcher_->consume(token));
  return {};
}

bool ConstrainedText::follow_ahead(TokenId token) {
  if (ahead().empty() || ahead().front() != token) return false;
  ++followed_;
  return true;
}

Result<ConstrainedText::Step> ConstrainedText::step() {
  MF_ASSIGN_OR_RETURN(const Matcher::Next next, matcher_->next());
  return Step{.words = {next.mask.words.begin(), next.mask.words.end()},
              .may_end = next.may_end,
              .must_end = next.must_end};
}

Result<ConstrainedText::Allowed> ConstrainedText::allowed(std::span<const TokenId> stop_tokens) {
  MF_RETURN_IF_ERROR(begin());
  Matcher::Next next;
  if (steps_.empty()) {
    MF_ASSIGN_OR_RETURN(next, matcher_->next());
  } else {
    const Step& known = steps_[followed_];
    next = {.mask = {known.words}, .may_end = known.may_end, .must_end = known.must_end};
  }
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
