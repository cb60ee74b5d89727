// A token that follows a text, as its receiver is told of it.
#pragma once

#include <string_view>

#include "base/ids.h"
#include "sampling/token_logprobs.h"

namespace moeflux {

/// Valid during the call that tells it.
struct DrawnToken {
  TokenId token = 0;
  /// Whole characters that the token completed, maybe none.
  std::string_view text = {};
  /// The token ended the text and is not part of it: `text` is at most what was held back before.
  bool is_stop = false;
  /// Null unless they were asked for.
  const TokenLogprobs* logprobs = nullptr;
};

}  // namespace moeflux
