// The names of samplers and the order of a chain, as llama.cpp writes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moeflux {

/// A step between the row of logits and the draw. Snapshots hold these numbers.
enum class SamplerStep : uint8_t {
  kPenalties,
  kDry,
  kTopNSigma,
  kTopK,
  kTypicalP,
  kTopP,
  kMinP,
  kXtc,
  kTemperature
};
constexpr int kSamplerStepCount = 9;

/// llama.cpp's, which is that of the enumerators.
std::vector<SamplerStep> default_sampler_order();

/// Reads names separated by semicolons: penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p,
/// xtc, temperature, and those that llama.cpp takes besides (nucleus, temp, typical, hyphens). None
/// at all is a chain without steps. Fails with kInvalidArgument, naming what is no sampler.
Result<std::vector<SamplerStep>> parse_sampler_order(std::string_view names);

/// The same of one letter each: e d s k y p m x t.
Result<std::vector<SamplerStep>> parse_sampler_letters(std::string_view letters);

/// The names, separated by semicolons.
std::string sampler_order_names(const std::vector<SamplerStep>& order);

}  // namespace moeflux
