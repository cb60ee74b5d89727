#include "model/config/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/format.h"
#include "base/portable_math.h"
#include "model/config/config.h"

namespace moeflux {
namespace {

double mscale(double factor, double weight) {
  return factor <= 1.0 ? 1.0 : 0.1 * weight * portable_log(factor) + 1.0;
}

void read_yarn(Config& r, double theta, bool truncate, RopeSpec& spec) {
  YarnSpec yarn;
  yarn.theta = theta;
  yarn.dim = spec.rotary_dim;
  yarn.factor = r.require_number("factor", 1.0, 1e6);
  yarn.original_max_position = r.require_number("original_max_position_embeddings", 1.0, 1e9);
  yarn.beta_fast = r.number_or("beta_fast", 32.0, 1e-6, 1e6);
  yarn.beta_slow = r.number_or("beta_slow", 1.0, 1e-6, 1e6);
  yarn.truncate = truncate;
  spec.inverse_frequencies = yarn_frequencies(yarn);
  const double all_dim = r.number_or("mscale_all_dim", 0.0, 0.0, 100.0);
  const double own = r.number_or("mscale", 0.0, 0.0, 100.0);  // 0 and absent are the same
  if (r.has("attention_factor")) {
    spec.attention_factor = static_cast<float>(r.require_number("attention_factor", 0.0, 1e6));
  } else if (own != 0.0 && all_dim != 0.0) {
    spec.attention_factor =
        static_cast<float>(mscale(yarn.factor, own) / mscale(yarn.factor, all_dim));
  } else {
    spec.attention_factor = static_cast<float>(mscale(yarn.factor, 1.0));
  }
  r.ignore("max_position_embeddings");  // the model's own says it
  if (all_dim != 0.0) spec.softmax_mscale = mscale(yarn.factor, all_dim);
}

// Every position counts as a part of itself, so that all frequencies are divided.
void read_linear(Config& r, double theta, RopeSpec& spec) {
  const auto factor = static_cast<float>(r.require_number("factor", 1.0, 1e6));
  spec.inverse_frequencies = default_frequencies(theta, spec.rotary_dim);
  for (float& frequency : spec.inverse_frequencies) frequency /= factor;
}

void read_llama3(Config& r, double theta, RopeSpec& spec) {
  Llama3Spec scaling;
  scaling.factor = r.require_number("factor", 1.0, 1e6);
  scaling.low_freq = r.require_number("low_freq_factor", 1e-6, 1e6);
  scaling.high_freq = r.require_number("high_freq_factor", 1e-6, 1e6);
  scaling.original_max_position = r.require_number("original_max_position_embeddings", 1.0, 1e9);
  if (scaling.high_freq < scaling.low_freq) {
    r.fail(ErrorCode::kInvalidArgument, formatted("high_freq_factor {} is below low_freq_factor {}",
                                                  scaling.high_freq, scaling.low_freq));
  }
  spec.inverse_frequencies = llama3_frequencies(theta, spec.rotary_dim, scaling);
}

// Divides each frequency by a number of the list under `key`.
void divide_by_factors(Config& r, std::string_view key, std::vector<float>& frequencies) {
  const Json* factors = r.find(key);
  r.ignore(key);
  if (factors == nullptr || !factors->is_array() || factors->size() < frequencies.size()) {
    const size_t found = factors == nullptr || !factors->is_array() ? 0 : factors->size();
    r.fail(ErrorCode::kInvalidArgument,
           formatted("{} has {} numbers, expected {}", key, found, frequencies.size()));
    return;
  }
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const Json& factor = (*factors)[i];
    if (!factor.is_number() || !(factor.get<double>() > 0.0)) {
      r.fail(ErrorCode::kInvalidArgument,
             formatted("{} has {}, expected positive numbers", key, json_excerpt(factor)));
      return;
    }
    frequencies[i] /= factor.get<float>();
  }
}

// Factors of some GGUF files: a number for each frequency, by which it is divided.
void read_factors(Config& r, double theta, RopeSpec& spec) {
  spec.inverse_frequencies = default_frequencies(theta, spec.rotary_dim);
  divide_by_factors(r, "frequency_factors", spec.inverse_frequencies);
}

// Phi's first files call it su or yarn.
bool names_longrope(std::string_view type) {
  return type == "longrope" || type == "su" || type == "yarn";
}

// LongRoPE: other factors for texts within the original context and beyond it. transformers chooses
// them anew as a text grows, which leaves the keys of its beginning with others; here the longest
// text that will be evaluated decides.
void read_longrope(Config& c, Config& r, double theta, RopeSpec& spec) {
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  const double longest =
      static_cast<double>(c.int_or("max_position_embeddings", 4096, {1, 1 << 30}));
  const double inner = r.number_or(kOriginal, longest, 1.0, 1e9);
  // Beside max_position_embeddings it has precedence.
  const double original = c.number_or(kOriginal, inner, 1.0, 1e9);
  const double factor = r.number_or("factor", longest / original, 0.0, 1e6);
  const double usual =
      factor <= 1.0 ? 1.0
                    : std::sqrt(1.0 + portable_log(factor) / portable_log(std::max(original, 2.0)));
  spec.attention_factor = static_cast<float>(r.number_or("attention_factor", usual, 0.0, 1e6));
  const auto used = static_cast<double>(c.use().context_length);
  const double asked = used > 0.0 ? used : longest;
  spec.for_short_texts = asked <= original;
  spec.inverse_frequencies = default_frequencies(theta, spec.rotary_dim);
  const std::string_view own = spec.for_short_texts ? "short_factor" : "long_factor";
  r.ignore(spec.for_short_texts ? "long_factor" : "short_factor");
  divide_by_factors(r, own, spec.inverse_frequencies);
}

// Converters that write the new dialect may leave the old one behind: they must mean the same.
void check_dialects_agree(Config& c, const Config& parameters) {
  const Config scaling = c.object("rope_scaling");
  for (const UnreadKey& unread : scaling.unread()) {
    const Json* other = parameters.find(unread.key == "type" ? "rope_type" : unread.key);
    if (other != nullptr && *other == unread.value) continue;
    c.fail(
        ErrorCode::kInvalidArgument,
        formatted("rope_scaling: {} is {}, rope_parameters say {}", unread.key,
                  json_excerpt(unread.value), other == nullptr ? "nothing" : json_excerpt(*other)));
  }
}

// "proportional": the exponents run over the whole head, only the first `fraction` of the pairs
// rotate.
std::vector<float> proportional_frequencies(double theta, int64_t dim, double fraction) {
  std::vector<float> frequencies = default_frequencies(theta, dim);
  const auto rotating = static_cast<size_t>(fraction * static_cast<double>(dim) / 2.0);
  std::fill(frequencies.begin() + static_cast<int64_t>(rotating), frequencies.end(), 0.0f);
  return frequencies;
}

}  // namespace

float QueryScale::at(int64_t position) const {
  if (power != 0.0) {
    const double ratio = static_cast<double>(position + offset) / static_cast<double>(period);
    return static_cast<float>(portable_exp(power * portable_log1p(ratio)));
  }
  if (is_smooth) {
    const double ratio = static_cast<double>(position + offset) / static_cast<double>(period);
    return ratio <= 1.0 ? 1.0f : static_cast<float>(1.0 + beta * portable_log(ratio));
  }
  const auto periods = static_cast<double>((position + offset) / period);
  return static_cast<float>(1.0 + beta * portable_log1p(periods));
}

std::vector<float> default_frequencies(double theta, int64_t dim) {
  std::vector<float> frequencies(static_cast<size_t>((dim + 1) / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(dim);
    frequencies[i] = static_cast<float>(1.0 / portable_pow(theta, exponent));
  }
  return frequencies;
}

std::vector<float> yarn_frequencies(const YarnSpec& yarn) {
  const auto dim = static_cast<double>(yarn.dim);
  // The dimension whose wavelength fits `rotations` times into the original context.
  const auto dimension_of = [&](double rotations) {
    return dim * portable_log(yarn.original_max_position / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * portable_log(yarn.theta));
  };
  double low = dimension_of(yarn.beta_fast);
  double high = dimension_of(yarn.beta_slow);
  if (yarn.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;
  std::vector<float> frequencies(static_cast<size_t>(yarn.dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const auto position = static_cast<double>(i);
    const double ramp = std::clamp((position - low) / (high - low), 0.0, 1.0);
    const double original = 1.0 / portable_pow(yarn.theta, 2.0 * position / dim);
    frequencies[i] = static_cast<float>(original * (1.0 - ramp) + original / yarn.factor * ramp);
  }
  return frequencies;
}

std::vector<float> llama3_frequencies(double theta, int64_t dim, const Llama3Spec& scaling) {
  std::vector<float> frequencies = default_frequencies(theta, dim);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double own =
        1.0 / portable_pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(dim));
    const double turns = scaling.original_max_position * own / (2.0 * std::numbers::pi);
    if (turns > scaling.high_freq) continue;
    const double share = turns < scaling.low_freq
                             ? 0.0
                             : (turns - scaling.low_freq) / (scaling.high_freq - scaling.low_freq);
    frequencies[i] = static_cast<float>((1.0 - share) * own / scaling.factor + share * own);
  }
  return frequencies;
}

namespace {

/// Keys beside the kinds of layers would hold for all of them.
void absorb_common_keys(Config& c, Config& outer) {
  for (const UnreadKey& unread : outer.unread()) {
    if (unread.value.is_object()) outer.ignore(unread.key);
  }
  outer.expect_string("rope_type", "default");
  c.absorb(outer);
}

// The share of dimensions that turns; `share_of_wider` as in RopeDefaults.
double read_fraction(Config& r, double usual, double share_of_wider) {
  const double fraction = r.number_or("partial_rotary_factor", usual, 0.0, 1.0);
  if (share_of_wider == 0.0) return fraction;
  if (fraction != 1.0 && std::abs(fraction - share_of_wider) > 1e-6) {
    const std::string share = share_of_wider < 1.0 ? formatted("{} or ", share_of_wider) : "";
    r.fail(ErrorCode::kUnsupported,
           formatted("partial_rotary_factor is {}, expected {}1", fraction, share));
  }
  return 1.0;
}

}  // namespace

RopeSpec read_rope(Config& c, const RopeDefaults& defaults) {
  const bool new_dialect = c.has("rope_parameters");
  Config outer = c.object(new_dialect ? "rope_parameters" : "rope_scaling");
  if (new_dialect && c.has("rope_scaling")) check_dialects_agree(c, outer);
  const bool nested = !defaults.layer_type.empty() && outer.has(defaults.layer_type);
  Config r = nested ? outer.object(defaults.layer_type) : outer;
  const double outer_fraction =
      c.number_or("partial_rotary_factor", defaults.partial_rotary_factor, 0.0, 1.0);
  const double outer_theta = r.has("rope_theta") ? c.number_or(defaults.theta_key, 1.0, 1.0, 1e12)
                                                 : c.require_number(defaults.theta_key, 1.0, 1e12);
  const double own_theta = r.number_or("rope_theta", outer_theta, 1.0, 1e12);
  const double theta = defaults.theta > 0.0 ? defaults.theta : own_theta;
  const double fraction = read_fraction(r, outer_fraction, defaults.share_of_wider);
  const std::string type = r.string_or("rope_type", r.string_or("type", "default"));
  // Where kinds of layers have positions of their own, transformers looks beside the kinds alone.
  constexpr std::string_view kTruncate = "truncate";
  const bool common_truncate = !nested || outer.bool_or(kTruncate, true);
  if (nested) r.ignore(kTruncate);

  const bool is_longrope = defaults.is_longrope && names_longrope(type);
  RopeSpec spec;
  if (defaults.scales_queries && r.has("llama_4_scaling_beta")) {
    spec.query_scale.beta = r.require_number("llama_4_scaling_beta", 0.0, 1e3);
    spec.query_scale.period = r.require_int("original_max_position_embeddings", {1, 1 << 30});
  }

  // They are for images: a text's three positions are the same. Qwen2-VL calls them mrope.
  const bool is_default = type == "default" || type == "mrope";
  for (const std::string_view key : {"mrope_section", "mrope_interleaved"}) r.ignore(key);

  spec.interleaved = defaults.interleaved;
  spec.rotary_dim = static_cast<int64_t>(static_cast<double>(defaults.head_dim) * fraction);
  if (type == "proportional") {
    r.expect_number("factor", 1.0);
    spec.rotary_dim = defaults.head_dim;
    spec.inverse_frequencies = proportional_frequencies(theta, defaults.head_dim, fraction);
  } else if (is_default) {
    spec.inverse_frequencies = default_frequencies(theta, spec.rotary_dim);
  } else if ((type == "yarn" && !is_longrope) || type == "deepseek_yarn") {  // Sarvam's word
    read_yarn(r, theta, nested ? common_truncate : r.bool_or(kTruncate, true), spec);
  } else if (type == "linear") {
    read_linear(r, theta, spec);
  } else if (type == "llama3") {
    read_llama3(r, theta, spec);
  } else if (is_longrope) {
    read_longrope(c, r, theta, spec);
  } else if (type == "factors") {
    read_factors(r, theta, spec);
  } else {
    r.fail(ErrorCode::kUnsupported,
           formatted("rope_type \"{}\" is not supported; known are default, linear, yarn, "
                     "llama3, proportional",
                     type));
  }
  // A pair that only half belongs to the share turns as well, where its frequency is there.
  const bool rounds = is_default || type == "linear" || type == "llama3";
  if (rounds && spec.rotary_dim < defaults.head_dim) spec.rotary_dim += spec.rotary_dim % 2;
  if (spec.rotary_dim % 2 != 0) {
    r.fail(ErrorCode::kInvalidArgument,
           formatted("partial_rotary_factor {} of {} dimensions rotates an odd number of them",
                     fraction, defaults.head_dim));
  }
  c.absorb(r);
  if (nested) absorb_common_keys(c, outer);
  return spec;
}

}  // namespace moeflux
