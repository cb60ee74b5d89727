// The fields of a request that say how to generate, which all protocols share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sampling/sampler_options.h"
#include "serve/fields.h"

namespace moeflux::serve {

struct GenerationFields {
  SamplerOptions sampler;   // the seed is that of the first choice
  int64_t tokens_max = -1;  // negative: until the text or the context ends
  std::vector<std::string> stop = {};
  int64_t choices = 1;
  bool stream = false;
  bool include_usage = false;  // a frame with the usage at the stream's end
  bool reuse_states = true;
  bool return_progress = false;
  bool timings_per_token = false;
  bool ignore_stop_tokens = false;
};

/// Reads temperature, top_p, top_k, min_p, the other samplers, seed, stop, n, stream,
/// stream_options, logit_bias and penalties over `defaults`. A seed that the client does not say is
/// drawn. Problems are left in `fields`.
GenerationFields read_generation_fields(Fields& fields, const SamplerOptions& defaults);

/// The sampler of a choice: choice 0 is what a request of one choice gets.
SamplerOptions sampler_of_choice(const SamplerOptions& first, int64_t choice);

}  // namespace moeflux::serve
