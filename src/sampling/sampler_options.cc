#include "sampling/sampler_options.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/format.h"

namespace moeflux {
namespace {

constexpr size_t kSamplersMax = 32;
constexpr size_t kBreakersMax = 64;
constexpr size_t kBreakerBytesMax = 40;

Status check(bool is_right, std::string_view field, double found, std::string_view expected) {
  if (is_right) return {};
  return make_error(ErrorCode::kInvalidArgument, "{} is {}, expected {}", field, found, expected);
}

bool is_finite(float x) { return std::isfinite(x); }
bool is_at_least_0(float x) { return std::isfinite(x) && x >= 0; }
bool is_share(float x) { return x >= 0 && x <= 1; }
bool is_window(int32_t x) { return x >= -1 && x <= kTokenEnd; }

constexpr std::string_view kFinite = "a finite number";
constexpr std::string_view kAtLeast0 = "0 or more";
constexpr std::string_view kShare = "0 to 1";
constexpr std::string_view kWindow = "-1 to 2^24";

Status validate_penalties(const SamplerOptions& o) {
  MF_RETURN_IF_ERROR(check(is_finite(o.repeat_penalty) && o.repeat_penalty > 0, "repeat_penalty",
                           o.repeat_penalty, "a number above 0"));
  MF_RETURN_IF_ERROR(check(is_window(o.repeat_last_n), "repeat_last_n", o.repeat_last_n, kWindow));
  MF_RETURN_IF_ERROR(
      check(is_finite(o.presence_penalty), "presence_penalty", o.presence_penalty, kFinite));
  MF_RETURN_IF_ERROR(
      check(is_finite(o.frequency_penalty), "frequency_penalty", o.frequency_penalty, kFinite));
  MF_RETURN_IF_ERROR(check(o.vocab_limit >= 0, "vocab_limit", o.vocab_limit, kAtLeast0));
  for (const LogitBias& entry : o.logit_bias) {
    const bool is_ban = entry.bias == -std::numeric_limits<float>::infinity();
    MF_RETURN_IF_ERROR(check(entry.token >= 0, "logit_bias token", entry.token, kAtLeast0));
    MF_RETURN_IF_ERROR(check(is_finite(entry.bias) || is_ban, "logit_bias", entry.bias,
                             "a finite number or minus infinity"));
  }
  return {};
}

Status validate_dry(const SamplerOptions& o) {
  MF_RETURN_IF_ERROR(
      check(is_at_least_0(o.dry_multiplier), "dry_multiplier", o.dry_multiplier, kAtLeast0));
  MF_RETURN_IF_ERROR(check(is_at_least_0(o.dry_base), "dry_base", o.dry_base, kAtLeast0));
  MF_RETURN_IF_ERROR(check(o.dry_allowed_length >= 0 && o.dry_allowed_length <= kTokenEnd,
                           "dry_allowed_length", o.dry_allowed_length, "0 to 2^24"));
  MF_RETURN_IF_ERROR(
      check(is_window(o.dry_penalty_last_n), "dry_penalty_last_n", o.dry_penalty_last_n, kWindow));
  const std::vector<std::string>& breakers = o.dry_sequence_breakers;
  if (breakers.size() > kBreakersMax) {
    return make_error(ErrorCode::kInvalidArgument, "{} dry_sequence_breakers, expected at most {}",
                      breakers.size(), kBreakersMax);
  }
  for (const std::string& text : breakers) {
    if (!text.empty() && text.size() <= kBreakerBytesMax) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "dry_sequence_breakers: '{}' has {} bytes, expected 1 to {}", text,
                      text.size(), kBreakerBytesMax);
  }
  return {};
}

bool has_penalties(const SamplerOptions& o) {
  return o.repeat_last_n != 0 &&
         (o.repeat_penalty != 1.0f || o.presence_penalty != 0.0f || o.frequency_penalty != 0.0f);
}

bool is_active(SamplerStep step, const SamplerOptions& o) {
  switch (step) {
    case SamplerStep::kPenalties:
      return has_penalties(o);
    case SamplerStep::kDry:
      return o.dry_multiplier > 0 && o.dry_base >= 1 && o.dry_penalty_last_n != 0;
    case SamplerStep::kTopNSigma:
      return o.top_n_sigma > 0;
    case SamplerStep::kTopK:
      return o.top_k > 0;
    case SamplerStep::kTypicalP:
      return o.typical_p < 1;
    case SamplerStep::kTopP:
      return o.top_p < 1;
    case SamplerStep::kMinP:
      return o.min_p > 0;
    case SamplerStep::kXtc:
      return o.xtc_probability > 0 && o.xtc_threshold <= 0.5f;
    case SamplerStep::kTemperature:
      return true;
  }
  __builtin_unreachable();
}

}  // namespace

Status validate(const SamplerOptions& o) {
  MF_RETURN_IF_ERROR(check(is_finite(o.temperature), "temperature", o.temperature, kFinite));
  MF_RETURN_IF_ERROR(check(is_at_least_0(o.top_p), "top_p", o.top_p, kAtLeast0));
  MF_RETURN_IF_ERROR(check(is_share(o.min_p), "min_p", o.min_p, kShare));
  MF_RETURN_IF_ERROR(check(is_at_least_0(o.typical_p), "typical_p", o.typical_p, kAtLeast0));
  MF_RETURN_IF_ERROR(check(is_finite(o.top_n_sigma), "top_n_sigma", o.top_n_sigma, kFinite));
  MF_RETURN_IF_ERROR(
      check(is_share(o.xtc_probability), "xtc_probability", o.xtc_probability, kShare));
  MF_RETURN_IF_ERROR(
      check(is_at_least_0(o.xtc_threshold), "xtc_threshold", o.xtc_threshold, kAtLeast0));
  MF_RETURN_IF_ERROR(
      check(is_at_least_0(o.dynatemp_range), "dynatemp_range", o.dynatemp_range, kAtLeast0));
  MF_RETURN_IF_ERROR(check(is_at_least_0(o.dynatemp_exponent), "dynatemp_exponent",
                           o.dynatemp_exponent, kAtLeast0));
  MF_RETURN_IF_ERROR(
      check(o.mirostat >= 0 && o.mirostat <= 2, "mirostat", o.mirostat, "0, 1 or 2"));
  MF_RETURN_IF_ERROR(
      check(is_at_least_0(o.mirostat_tau), "mirostat_tau", o.mirostat_tau, kAtLeast0));
  MF_RETURN_IF_ERROR(
      check(is_at_least_0(o.mirostat_eta), "mirostat_eta", o.mirostat_eta, kAtLeast0));
  const auto count = static_cast<double>(o.samplers.size());
  MF_RETURN_IF_ERROR(
      check(o.samplers.size() <= kSamplersMax, "the number of samplers", count, "at most 32"));
  MF_RETURN_IF_ERROR(validate_penalties(o));
  return validate_dry(o);
}

bool uses_dry(const SamplerOptions& options) {
  const std::vector<SamplerStep> steps = active_steps(options);
  return std::find(steps.begin(), steps.end(), SamplerStep::kDry) != steps.end();
}

std::vector<SamplerStep> active_steps(const SamplerOptions& options) {
  if (options.mirostat != 0) return {SamplerStep::kTemperature};
  std::vector<SamplerStep> steps;
  for (const SamplerStep step : options.samplers) {
    if (is_active(step, options)) steps.push_back(step);
  }
  return steps;
}

}  // namespace moeflux
