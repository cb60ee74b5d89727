// The fields of a request that say how to generate, which all protocols share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "sampling/sampler_options.h"
#include "serve/request/fields.h"
#include "text/tokenizer.h"

namespace moeflux::serve {

/// Strings that end an answer; no request has more.
inline constexpr size_t kStopsMax = 16;

inline constexpr int64_t kChoicesMax = 128;

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
  bool return_routes = false;  // record them for GET /moeflux/routes/{id}
  std::string routes_id = {};  // under this name, once they are
  bool ignore_stop_tokens = false;
  int64_t tokens_min = 0;                    // before these no token ends the text
  std::vector<TokenId> stop_tokens = {};     // beside the model's
  std::vector<TokenId> allowed_tokens = {};  // no others are drawn; empty: any
  /// Words whose tokens are biased as those of the sampler's logit_bias.
  std::vector<std::pair<std::string, float>> word_biases = {};
  bool includes_stop = false;  // a stop string that ends the text is a part of it
  /// Names of the request that nobody reads; see Fields::ignored().
  std::vector<std::string> ignored = {};
};

/// Reads temperature, top_p, top_k, min_p, the other samplers, seed and penalties over `defaults`,
/// from the object that holds them: the request itself or its options. A seed that the client does
/// not say is drawn. Problems are left in `fields`, as with all that follow.
SamplerOptions read_sampler(Fields& fields, const SamplerOptions& defaults);

/// The fields that all interfaces have under the same names: generation_rows().
GenerationFields read_shared_generation(Fields& fields, const SamplerOptions& defaults);

/// The same and what OpenAI's completions have beside: stop, n, stream and stream_options.
GenerationFields read_generation_fields(Fields& fields, const SamplerOptions& defaults);

/// Biases of tokens, with those of words' tokens.
std::vector<LogitBias> logit_biases(const GenerationFields& generation, const Tokenizer& tokenizer);

/// The sampler of a choice: choice 0 is what a request of one choice gets.
SamplerOptions sampler_of_choice(const SamplerOptions& first, int64_t choice);

}  // namespace moeflux::serve
