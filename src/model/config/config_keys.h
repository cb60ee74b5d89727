// The meaning of keys of config.json that no family reads: some say how a model was made or is
// used, some change its results. The one place that lists either kind.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json_fwd.h"
#include "model/model_spec.h"

namespace moeflux {

/// True for keys about training, tokens, sampling, images and packaging: evaluating text does not
/// ask for them, whatever their values.
bool is_harmless_key(std::string_view key);

enum class KeyMeaning : uint8_t {
  kUnknown,
  kNeutral,  // the computation is what the spec says
  kChanges,  // the computation is another one
};

/// The effect of a key that no family reads on the computation of `spec`. Neutral are null
/// everywhere, 1 for a factor, false, 0 and empty for a switch, and what the spec has anyhow.
KeyMeaning meaning_of(const ModelSpec& spec, std::string_view key, const Json& value);

}  // namespace moeflux
