// Each step narrows the candidates or changes their logits; only what a step needs is sorted.
#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/format.h"
#include "base/portable_math.h"
#include "sampling/dry.h"
#include "sampling/mirostat.h"
#include "sampling/philox.h"
#include "sampling/truncation.h"

namespace moeflux {
namespace {

Status check_logit(float logit, TokenId id) {
  if (!std::isnan(logit) && logit != std::numeric_limits<float>::infinity()) return {};
  return make_error(ErrorCode::kInvalidArgument, "logit of token {} is {}, expected a number", id,
                    logit);
}

bool penalizes_first(std::span<const SamplerStep> steps) {
  return !steps.empty() && steps.front() == SamplerStep::kPenalties;
}

// The tokens of the first `count` that a mask allows.
size_t allowed_count(const TokenMask* mask, int32_t count) {
  size_t allowed = 0;
  for (TokenId id = 0; id < count; ++id) allowed += mask == nullptr || mask->allows(id) ? 1 : 0;
  return allowed;
}

bool changes_logits(SamplerStep step) {
  return step == SamplerStep::kPenalties || step == SamplerStep::kDry;
}

}  // namespace

Result<Sampler> Sampler::create(SamplerOptions options) {
  MF_RETURN_IF_ERROR(validate(options));
  if (!options.dry_breakers) options.dry_breakers = std::make_shared<const DryBreakers>();
  return Sampler(std::move(options));
}

Result<TokenId> Sampler::sample(std::span<const float> logits, const TokenMask* mask) {
  MF_RETURN_IF_ERROR(gather(logits));
  const std::span<const SamplerStep> steps = change_first();
  if (mask != nullptr) {
    std::erase_if(candidates_.list, [&](const TokenLogit& c) { return !mask->allows(c.id); });
  }
  MF_RETURN_IF_ERROR(check_candidates(candidates_.list.size()));
  return pick(steps);
}

// Penalties, where they stand first, and bias, of candidates in the order of ids. Gives the steps
// that are left.
std::span<const SamplerStep> Sampler::change_first() {
  std::span<const SamplerStep> steps = steps_;
  if (penalizes_first(steps)) {
    penalize();
    steps = steps.subspan(1);
  }
  for (const LogitBias& entry : options_.logit_bias) {
    const auto found =
        std::ranges::lower_bound(candidates_.list, entry.token, std::less(), &TokenLogit::id);
    if (found != candidates_.list.end() && found->id == entry.token) found->logit += entry.bias;
  }
  return steps;
}

Result<TokenId> Sampler::pick(std::span<const SamplerStep> steps) {
  for (const SamplerStep step : steps) {
    if (changes_logits(step)) {
      MF_RETURN_IF_ERROR(change_logits(step));
    } else if (!is_greedy()) {
      narrow(step);
    }
  }
  if (is_greedy()) return candidates_.best().id;
  const double mu = progress_.mirostat_mu.value_or(2.0 * options_.mirostat_tau);
  if (options_.mirostat == 1) keep_for_mirostat(candidates_, mu);
  if (options_.mirostat == 2) keep_for_mirostat_2(candidates_, mu);
  return draw();
}

// A greedy pick needs the best, any other the k best, where every step before top-k leaves order
// and probabilities alone; after top-k nothing else is left to look at. A bias below zero, such as
// that of an end that is ignored, lets one more come up.
int32_t Sampler::best_needed(int32_t count) const {
  const bool raises = std::ranges::any_of(
      options_.logit_bias, [](const LogitBias& entry) { return !(entry.bias <= 0); });
  if (raises || options_.mirostat != 0 || count > kTokenEnd) return 0;
  const auto enough = [&](int64_t chosen) {
    const int64_t needed = chosen + static_cast<int64_t>(options_.logit_bias.size());
    // sample() leaves all of them in the order of ids
    return needed < count ? static_cast<int32_t>(needed) : 0;
  };
  const int64_t kept = kept_by(steps_);
  return kept > 0 ? enough(kept) : 0;
}

int64_t Sampler::kept_by(std::span<const SamplerStep> steps) const {
  if (is_greedy()) return std::ranges::none_of(steps, changes_logits) ? 1 : 0;
  for (const SamplerStep step : steps) {
    if (step == SamplerStep::kTopK) return options_.top_k;
    if (step != SamplerStep::kTemperature || options_.dynatemp_range > 0) return 0;
  }
  return 0;
}

// Top-k leaves its candidates in the order of ids where there are no more than k: one more tells.
Sampler::SomeNeeded Sampler::some_needed(int32_t count) const {
  std::span<const SamplerStep> steps = steps_;
  const bool has_penalties = penalizes_first(steps);
  if (has_penalties) steps = steps.subspan(1);
  const int64_t kept = kept_by(steps);
  const bool has_long_window = has_penalties && options_.repeat_last_n < 0;
  if (kept == 0 || options_.mirostat != 0 || count > kTokenEnd || has_long_window) return {};
  SomeNeeded needed;
  needed.best = static_cast<int32_t>(std::min<int64_t>(is_greedy() ? 1 : kept + 1, count));
  if (has_penalties) needed.apart = window_;
  for (const LogitBias& entry : options_.logit_bias) needed.apart.push_back(entry.token);
  std::erase_if(needed.apart, [&](TokenId id) { return id < 0 || id >= count; });
  std::ranges::sort(needed.apart);
  const auto repeated = std::ranges::unique(needed.apart);
  needed.apart.erase(repeated.begin(), repeated.end());
  return needed;
}

Result<TokenId> Sampler::sample_some(std::span<const TokenLogit> some, int32_t count,
                                     const TokenMask* mask) {
  candidates_.temperature = 1.0;
  candidates_.list.assign(some.begin(), some.end());
  std::ranges::sort(candidates_.list, std::less(), &TokenLogit::id);
  for (const TokenLogit& c : candidates_.list) MF_RETURN_IF_ERROR(check_logit(c.logit, c.id));
  const std::span<const SamplerStep> steps = change_first();
  const Status checked = check_candidates(0);
  if (!checked.ok()) return check_candidates(allowed_count(mask, count)).error();
  return pick(steps);
}

Result<TokenId> Sampler::sample_best(std::span<const TokenLogit> best, int32_t count) {
  candidates_.temperature = 1.0;
  candidates_.list.assign(best.begin(), best.end());
  for (const TokenLogit& c : candidates_.list) MF_RETURN_IF_ERROR(check_logit(c.logit, c.id));
  for (const LogitBias& entry : options_.logit_bias) {
    for (TokenLogit& c : candidates_.list) {
      if (c.id == entry.token) c.logit += entry.bias;
    }
  }
  MF_RETURN_IF_ERROR(check_candidates(static_cast<size_t>(count)));
  return pick(steps_);
}

bool Sampler::has(SamplerStep step) const {
  return std::find(steps_.begin(), steps_.end(), step) != steps_.end();
}

Status Sampler::gather(std::span<const float> logits) {
  size_t count = std::min(logits.size(), static_cast<size_t>(kTokenEnd));
  if (options_.vocab_limit > 0) {
    count = std::min(count, static_cast<size_t>(options_.vocab_limit));
  }
  candidates_.temperature = 1.0;
  candidates_.list.resize(count);
  for (size_t i = 0; i < count; ++i) {
    candidates_.list[i] = {logits[i], static_cast<TokenId>(i)};
    MF_RETURN_IF_ERROR(check_logit(logits[i], static_cast<TokenId>(i)));
  }
  return {};
}

Status Sampler::check_candidates(size_t count) const {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  bool has_choice = false;
  for (const TokenLogit& c : candidates_.list) {
    if (!(c.logit < kInfinity)) {  // penalties and biases can overflow
      return make_error(ErrorCode::kInvalidArgument,
                        "logit of token {} is {} after penalties and bias", c.id, c.logit);
    }
    has_choice = has_choice || c.logit > -kInfinity;
  }
  if (has_choice) return {};
  return make_error(ErrorCode::kInvalidArgument, "none of {} logits is above minus infinity",
                    count);
}

// A penalty on logits counts after the temperature, if that has come before.
Status Sampler::change_logits(SamplerStep step) {
  if (candidates_.temperature != 1.0) {
    for (TokenLogit& c : candidates_.list) {
      c.logit = static_cast<float>(c.logit / candidates_.temperature);
    }
    candidates_.temperature = 1.0;
  }
  if (step == SamplerStep::kPenalties) {
    penalize();
  } else {
    std::span<const TokenId> text = dry_text_;
    const auto window = static_cast<size_t>(std::max(options_.dry_penalty_last_n, 0));
    if (options_.dry_penalty_last_n > 0 && text.size() > window) text = text.last(window);
    penalize_repeats(candidates_, text, *options_.dry_breakers,
                     {.multiplier = options_.dry_multiplier,
                      .base = options_.dry_base,
                      .allowed_length = options_.dry_allowed_length});
  }
  return check_candidates(candidates_.list.size());
}

void Sampler::narrow(SamplerStep step) {
  switch (step) {
    case SamplerStep::kTopNSigma:
      keep_within_sigmas(candidates_, options_.top_n_sigma);
      break;
    case SamplerStep::kTopK:
      keep_top_k(candidates_, static_cast<size_t>(options_.top_k));
      break;
    case SamplerStep::kTypicalP:
      keep_typical(candidates_, options_.typical_p);
      break;
    case SamplerStep::kTopP:
      keep_top_p(candidates_, options_.top_p);
      break;
    case SamplerStep::kMinP:
      keep_min_p(candidates_, options_.min_p);
      break;
    case SamplerStep::kXtc:
      maybe_drop_top_choices();
      break;
    case SamplerStep::kTemperature:
      apply_temperature();
      break;
    case SamplerStep::kPenalties:
    case SamplerStep::kDry:
      MF_CHECK(false);  // these change logits
  }
}

void Sampler::penalize() {
  for (TokenLogit& c : candidates_.list) {
    const auto id = static_cast<size_t>(c.id);
    if (id >= counts_.size() || counts_[id] == 0) continue;
    float& logit = c.logit;
    logit = logit <= 0 ? logit * options_.repeat_penalty : logit / options_.repeat_penalty;
    logit -= static_cast<float>(counts_[id]) * options_.frequency_penalty;
    logit -= options_.presence_penalty;
  }
}

void Sampler::apply_temperature() {
  double temperature = options_.temperature;
  if (options_.dynatemp_range > 0) {
    temperature = dynamic_temperature(candidates_, {.temperature = options_.temperature,
                                                    .range = options_.dynatemp_range,
                                                    .exponent = options_.dynatemp_exponent});
  }
  if (temperature > 0) {
    candidates_.temperature *= temperature;
  } else {
    keep_top_k(candidates_, 1);
  }
}

void Sampler::maybe_drop_top_choices() {
  if (next_uniform() < options_.xtc_probability) {
    drop_top_choices(candidates_, options_.xtc_threshold);
  }
}

double Sampler::next_uniform() { return uniform_draw(options_.seed, progress_.draws_count++); }

TokenId Sampler::draw() {
  const TokenLogit best = candidates_.best();
  const double highest = best.logit;
  const std::vector<TokenLogit>& list = candidates_.list;
  weights_.resize(list.size());
  double total = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    weights_[i] = portable_exp(candidates_.distance(list[i], highest));
    total += weights_[i];
  }
  const double target = next_uniform() * total;
  double sum = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    sum += weights_[i];
    if (target >= sum) continue;
    learn(weights_[i], total);
    return list[i].id;
  }
  learn(1.0, total);
  return best.id;  // rounding left the target at the very end
}

void Sampler::learn(double weight, double total) {
  if (options_.mirostat == 0) return;
  const double surprise = (portable_log(total) - portable_log(weight)) / portable_log(2.0);
  const double mu = progress_.mirostat_mu.value_or(2.0 * options_.mirostat_tau);
  progress_.mirostat_mu =
      next_mu(mu, surprise, {.tau = options_.mirostat_tau, .eta = options_.mirostat_eta});
}

void Sampler::accept(TokenId token) {
  if (token < 0 || token >= kTokenEnd) return;
  if (has(SamplerStep::kDry)) {
    // Twice the window at most, so that the front is cut off seldom.
    const auto window = static_cast<size_t>(std::max(options_.dry_penalty_last_n, 0));
    if (window > 0 && dry_text_.size() >= 2 * window) {
      dry_text_.erase(dry_text_.begin(), dry_text_.end() - static_cast<std::ptrdiff_t>(window));
    }
    dry_text_.push_back(token);
  }
  if (!has(SamplerStep::kPenalties)) return;
  const auto id = static_cast<size_t>(token);
  if (id >= counts_.size()) counts_.resize(id + 1);
  ++counts_[id];
  if (options_.repeat_last_n < 0) return;
  if (window_.size() < static_cast<size_t>(options_.repeat_last_n)) {
    window_.push_back(token);
    return;
  }
  --counts_[static_cast<size_t>(window_[window_next_])];
  window_[window_next_] = token;
  window_next_ = (window_next_ + 1) % window_.size();
}

void Sampler::reset() {
  std::fill(counts_.begin(), counts_.end(), 0);
  window_.clear();
  window_next_ = 0;
  dry_text_.clear();
  progress_ = {};
}

}  // namespace moeflux
