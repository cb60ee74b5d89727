// One added token as JSON writes it, in tokenizer.json and in tokenizer_config.json alike.
#pragma once

#include <cstdint>

#include "base/json_fwd.h"
#include "base/result.h"
#include "text/vocabulary/added_tokens.h"

namespace moeflux {

/// Reads content and flags; `id` stands beside them or is their key. Fails with kCorruption when
/// the content is missing, a flag is no boolean, or the id is not one that a vocabulary can hold.
Result<AddedToken> read_added_token(const Json& spec, int64_t id);

}  // namespace moeflux
