// Other interfaces say in their words what OpenAI's chat completions say, so their requests become
// one of those. What is wrong with it is told in the words that the client used.
#pragma once

#include <span>
#include <string_view>

#include "base/json.h"
#include "serve/api_error.h"
#include "serve/openai/chat.h"

namespace moeflux::serve {

/// A field of chat completions and the field of another interface that stands for it.
struct FieldName {
  std::string_view openai;
  std::string_view theirs;
};

/// The same error about the field that the client sent. The first name that fits counts.
ApiError in_their_words(ApiError error, std::span<const FieldName> names);

/// The request of chat completions that another interface's became; what is wrong with it, and what
/// its answer is held to, is called by the names that the client used.
DecodedChat decode_translated(const Json& chat, const RequestDefaults& defaults,
                              std::span<const FieldName> names);

/// The fields of `body`, but for those of `own`, which mean something else there or are read by the
/// caller, and for what an interface of one answer without scores does not have (n, logprobs).
Json shared_fields(const Json& body, std::span<const std::string_view> own);

}  // namespace moeflux::serve
