// The flags of sampling, for every command that continues texts.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options.h"
#include "sampling/sampler_options.h"

namespace moeflux {

/// The user's settings; everything else comes from the model's generation_config.json.
struct SamplingFlags {
  std::vector<std::function<void(SamplerOptions&)>> numbers;  // sets a field each
  std::vector<std::string> logit_bias;
  std::vector<std::string> dry_sequence_breakers;
  std::optional<std::string> samplers;     // names
  std::optional<std::string> sampler_seq;  // letters
  std::string seed = "0";                  // "-1": drawn

  bool draws_seed() const { return seed == "-1"; }
};

void add_sampling_options(CommandOptions& command, SamplingFlags& flags);

/// The flags over `defaults`. Fails with kInvalidArgument, naming the flag or the field.
Result<SamplerOptions> sampler_options(const SamplingFlags& flags, SamplerOptions defaults);

}  // namespace moeflux
