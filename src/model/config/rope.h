// Rotary position settings as checkpoints spell them, and the frequencies they mean.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "backend/ops/rope.h"

namespace moeflux {

class Config;

/// The factor of queries at a position: 1 + beta * ln(1 + (position + offset) / period), of which
/// the quotient is a whole number, or (1 + (position + offset) / period)^power. The third kind is
/// 1 + beta * ln((position + offset) / period) of any quotient, and 1 before a whole period.
struct QueryScale {
  double beta = 0.0;
  double power = 0.0;  // not 0: in place of beta
  int64_t period = 1;
  int64_t offset = 0;
  bool is_smooth = false;

  bool is_none() const { return beta == 0.0 && power == 0.0; }
  float at(int64_t position) const;
};

struct RopeSpec {
  int64_t rotary_dim = 0;
  bool interleaved = false;
  float attention_factor = 1.0f;  // multiplies cos and sin
  /// YaRN models multiply the softmax scale with its square: 0.1 * mscale_all_dim * ln(factor)
  /// + 1.
  double softmax_mscale = 1.0;
  QueryScale query_scale;                  // where RopeDefaults says so
  bool for_short_texts = false;            // longrope's factors of them
  std::vector<float> inverse_frequencies;  // [rotary_dim / 2]

  RopeOptions options() const { return {rotary_dim, interleaved, attention_factor}; }
};

struct RopeDefaults {
  int64_t head_dim = 0;  // or the part of it that may rotate
  double partial_rotary_factor = 1.0;
  /// Where the base is when the rope's own object does not say it.
  std::string_view theta_key = "rope_theta";
  bool interleaved = false;
  double theta = 0.0;  // not 0: the base, whatever the config has
  /// Not 0: all of head_dim rotates, and partial_rotary_factor, where it stands, is this share of a
  /// wider head, or 1.
  double share_of_wider = 0.0;
  bool is_longrope = false;     // short_factor and long_factor count; elsewhere they are refused
  bool scales_queries = false;  // llama_4_scaling_beta counts; elsewhere it is refused
  std::string_view
      layer_type;  // the sub-object of rope_parameters, in models with several; may be empty
};

/// Reads either dialect: rope_parameters {rope_theta, rope_type, ...}, or rope_theta with
/// rope_scaling (null or {type | rope_type, ...}) and partial_rotary_factor. Types default, linear,
/// yarn, llama3, proportional, of some families longrope, of GGUF files factors; others are
/// kUnsupported.
/// Problems stick to `c`.
RopeSpec read_rope(Config& c, const RopeDefaults& defaults);

/// theta^(-2i / dim) for 2i below dim, in f32 as the references store them.
std::vector<float> default_frequencies(double theta, int64_t dim);

struct YarnSpec {
  double theta = 10000.0;
  int64_t dim = 0;
  double factor = 1.0;
  double original_max_position = 4096.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;
};
/// YaRN's blend of interpolated and original frequencies (Peng et al. 2023, section 3.2).
std::vector<float> yarn_frequencies(const YarnSpec& yarn);

/// Llama 3.1's: frequencies that turn less than low_freq times within the original context are
/// divided by `factor`, those that turn more than high_freq times stay, the others are between.
struct Llama3Spec {
  double factor = 1.0;
  double low_freq = 1.0;
  double high_freq = 4.0;
  double original_max_position = 8192.0;
};
std::vector<float> llama3_frequencies(double theta, int64_t dim, const Llama3Spec& scaling);

}  // namespace moeflux
