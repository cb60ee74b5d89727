// Each step narrows candidates_; only what a step needs is sorted.
#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/format.h"
#include "sampling/philox.h"

namespace moeflux {
namespace {

constexpr TokenId kTokenEnd = TokenId{1} << 24;

// exp() for x <= 0 in plain IEEE arithmetic: libm's differ between platforms in the last bit, which
// would let a seed mean another text. Error below 2 ulp.
double portable_exp(double x) {
  constexpr double kLog2OfE = 1.4426950408889634;
  constexpr double kLn2High = 0x1.62e42fee00000p-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  if (x < -700.0) return 0.0;
  const double power = std::nearbyint(x * kLog2OfE);
  const double r = (x - power * kLn2High) - power * kLn2Low;  // |r| <= ln(2) / 2
  double sum = 1.0;
  for (int n = 14; n >= 1; --n) sum = 1.0 + sum * r / n;
  return std::ldexp(sum, static_cast<int>(power));
}

Status check(bool is_right, std::string_view field, double found, std::string_view expected) {
  if (is_right) return {};
  return make_error(ErrorCode::kInvalidArgument, "{} is {}, expected {}", field, found, expected);
}

Status check_logit(float logit, TokenId id) {
  if (!std::isnan(logit) && logit != std::numeric_limits<float>::infinity()) return {};
  return make_error(ErrorCode::kInvalidArgument, "logit of token {} is {}, expected a number", id,
                    logit);
}

}  // namespace

Status validate(const SamplerOptions& o) {
  const auto finite = [](float x) { return std::isfinite(x); };
  constexpr std::string_view kFinite = "a finite number";
  MF_RETURN_IF_ERROR(check(finite(o.temperature), "temperature", o.temperature, kFinite));
  MF_RETURN_IF_ERROR(check(finite(o.top_p) && o.top_p >= 0, "top_p", o.top_p, "0 or more"));
  MF_RETURN_IF_ERROR(check(o.min_p >= 0 && o.min_p <= 1, "min_p", o.min_p, "0 to 1"));
  MF_RETURN_IF_ERROR(check(finite(o.repeat_penalty) && o.repeat_penalty > 0, "repeat_penalty",
                           o.repeat_penalty, "a number above 0"));
  MF_RETURN_IF_ERROR(check(o.repeat_last_n >= -1 && o.repeat_last_n <= kTokenEnd, "repeat_last_n",
                           o.repeat_last_n, "-1 to 2^24"));
  MF_RETURN_IF_ERROR(
      check(finite(o.presence_penalty), "presence_penalty", o.presence_penalty, kFinite));
  MF_RETURN_IF_ERROR(
      check(finite(o.frequency_penalty), "frequency_penalty", o.frequency_penalty, kFinite));
  MF_RETURN_IF_ERROR(check(o.vocab_limit >= 0, "vocab_limit", o.vocab_limit, "0 or more"));
  for (const LogitBias& entry : o.logit_bias) {
    const bool is_ban = entry.bias == -std::numeric_limits<float>::infinity();
    MF_RETURN_IF_ERROR(check(entry.token >= 0, "logit_bias token", entry.token, "0 or more"));
    MF_RETURN_IF_ERROR(check(finite(entry.bias) || is_ban, "logit_bias", entry.bias,
                             "a finite number or minus infinity"));
  }
  return {};
}

Result<Sampler> Sampler::create(SamplerOptions options) {
  MF_RETURN_IF_ERROR(validate(options));
  return Sampler(std::move(options));
}

Result<TokenId> Sampler::sample(std::span<const float> logits) {
  MF_RETURN_IF_ERROR(gather(logits));
  penalize();
  for (const LogitBias& entry : options_.logit_bias) {
    const auto id = static_cast<size_t>(entry.token);
    if (id < candidates_.size()) candidates_[id].logit += entry.bias;
  }
  MF_RETURN_IF_ERROR(check_candidates(candidates_.size()));
  if (options_.temperature > 0) keep_top_k();
  return pick();
}

TokenId Sampler::pick() {
  if (options_.temperature <= 0) {
    return std::min_element(candidates_.begin(), candidates_.end(), is_better)->id;
  }
  keep_top_p();
  keep_min_p();
  return draw();
}

int32_t Sampler::best_needed(int32_t count) const {
  if (has_penalties() || !options_.logit_bias.empty() || count > kTokenEnd) return 0;
  const int32_t needed = options_.temperature <= 0 ? 1 : std::max(options_.top_k, 0);
  return needed < count ? needed : 0;  // sample() leaves all of them in the order of ids
}

Result<TokenId> Sampler::sample_best(std::span<const TokenLogit> best, int32_t count) {
  candidates_.assign(best.begin(), best.end());
  for (const Candidate& c : candidates_) MF_RETURN_IF_ERROR(check_logit(c.logit, c.id));
  MF_RETURN_IF_ERROR(check_candidates(static_cast<size_t>(count)));
  return pick();
}

bool Sampler::is_better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

Status Sampler::gather(std::span<const float> logits) {
  size_t count = std::min(logits.size(), static_cast<size_t>(kTokenEnd));
  if (options_.vocab_limit > 0) {
    count = std::min(count, static_cast<size_t>(options_.vocab_limit));
  }
  candidates_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    candidates_[i] = {logits[i], static_cast<TokenId>(i)};
    MF_RETURN_IF_ERROR(check_logit(logits[i], static_cast<TokenId>(i)));
  }
  return {};
}

bool Sampler::has_penalties() const {
  return options_.repeat_last_n != 0 &&
         (options_.repeat_penalty != 1.0f || options_.presence_penalty != 0.0f ||
          options_.frequency_penalty != 0.0f);
}

void Sampler::penalize() {
  if (!has_penalties()) return;
  const size_t count = std::min(counts_.size(), candidates_.size());
  for (size_t i = 0; i < count; ++i) {
    if (counts_[i] == 0) continue;
    float& logit = candidates_[i].logit;
    logit = logit <= 0 ? logit * options_.repeat_penalty : logit / options_.repeat_penalty;
    logit -= static_cast<float>(counts_[i]) * options_.frequency_penalty;
    logit -= options_.presence_penalty;
  }
}

Status Sampler::check_candidates(size_t count) const {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  bool has_choice = false;
  for (const Candidate& c : candidates_) {
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

void Sampler::keep_top_k() {
  const auto k = static_cast<size_t>(std::max(options_.top_k, 0));
  if (k == 0 || k >= candidates_.size()) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k),
                   candidates_.end(), is_better);
  candidates_.resize(k);
  std::sort(candidates_.begin(), candidates_.end(), is_better);
}

void Sampler::keep_top_p() {
  if (options_.top_p >= 1.0f) return;
  const auto best = std::min_element(candidates_.begin(), candidates_.end(), is_better);
  const double highest = best->logit;
  double total = 0;
  for (const Candidate& c : candidates_) total += portable_exp(c.logit - highest);
  // A heap yields the best first without sorting the long tail, which is rarely reached.
  const auto is_worse = [](const Candidate& a, const Candidate& b) { return is_better(b, a); };
  std::make_heap(candidates_.begin(), candidates_.end(), is_worse);
  auto heap_end = candidates_.end();
  double sum = 0;
  while (heap_end != candidates_.begin()) {
    std::pop_heap(candidates_.begin(), heap_end, is_worse);
    --heap_end;  // what was popped stands behind the heap, the best last
    sum += portable_exp(heap_end->logit - highest);
    if (sum >= static_cast<double>(options_.top_p) * total) break;
  }
  std::reverse(heap_end, candidates_.end());
  candidates_.erase(candidates_.begin(), heap_end);
}

void Sampler::keep_min_p() {
  if (options_.min_p <= 0.0f) return;
  const auto best = std::min_element(candidates_.begin(), candidates_.end(), is_better);
  const double highest = best->logit;
  std::erase_if(candidates_, [&](const Candidate& c) {
    return portable_exp(c.logit - highest) < static_cast<double>(options_.min_p);
  });
}

TokenId Sampler::draw() {
  const auto best = std::min_element(candidates_.begin(), candidates_.end(), is_better);
  const double highest = best->logit;
  const TokenId best_id = best->id;
  weights_.resize(candidates_.size());
  double total = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const double distance = (candidates_[i].logit - highest) / options_.temperature;
    weights_[i] = distance == 0 ? 1.0 : portable_exp(distance);
    total += weights_[i];
  }
  const double target = uniform_draw(options_.seed, draws_count_++) * total;
  double sum = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    sum += weights_[i];
    if (target < sum) return candidates_[i].id;
  }
  return best_id;  // rounding left the target at the very end
}

void Sampler::accept(TokenId token) {
  if (!has_penalties() || token < 0 || token >= kTokenEnd) return;
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
  draws_count_ = 0;
}

}  // namespace moeflux
