// OpenAI's completions of plain text: what a request's JSON asks for.
#pragma once

#include <variant>

#include "base/json.h"
#include "serve/answer/raw_text.h"
#include "serve/wire/api_error.h"

namespace moeflux::serve {

/// prompt: a string, ids, a list of both, or a list of these, in which case it is true. Problems
/// are left in `fields`.
bool read_prompts(Fields& fields, const Tokenizer& tokenizer, RawRequest& request);

std::variant<RawRequest, ApiError> decode_completion_request(const Json& body,
                                                             const SamplerOptions& defaults,
                                                             const Tokenizer& tokenizer);

}  // namespace moeflux::serve
