// Sampling and stopping as a model's generation_config.json has them.
#pragma once

#include <vector>

#include "base/ids.h"
#include "base/json_fwd.h"
#include "base/result.h"
#include "sampling/sampler_options.h"

namespace moeflux {

/// The file's temperature, top_k, top_p, min_p and repetition_penalty over SamplerOptions'
/// defaults; fields that are absent or null keep these. "do_sample": false means temperature 0. A
/// repetition_penalty other than 1 sets repeat_last_n to -1: in these files it covers the whole
/// sequence. Fails with kInvalidArgument, naming the field, on a wrong type or value.
Result<SamplerOptions> sampler_options_from(const Json& config);

/// "eos_token_id", an integer or a list of them, in its order without repeats; empty when absent.
/// -1, also as an unsigned number, is absent. Also reads config.json, which has the same field.
Result<std::vector<TokenId>> eos_token_ids_from(const Json& config);

}  // namespace moeflux
