#include "serve/service_limits.h"

#include <algorithm>
#include <string>

#include "base/format.h"
#include "text/encoding/spec_fields.h"

namespace moeflux::serve {

size_t text_bytes_max(const OpenModel& model) {
  const Tokenizer& tokenizer = model.text.tokenizer.value();
  size_t longest = 1;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    longest = std::max(longest, tokenizer.token_bytes(static_cast<TokenId>(id)).size());
  }
  return static_cast<size_t>(model.engine->memory_plan().context_length) * longest * 4;
}

size_t text_bytes(const Json& json) {
  if (json.is_string()) return json.get_ref<const std::string&>().size();
  size_t bytes = 0;
  if (json.is_structured()) {
    for (const Json& one : json) bytes += text_bytes(one);
  }
  return bytes;
}

ApiError draining() {
  return {.status = 503,
          .type = "unavailable_error",
          .message = "the server is draining: it ends what runs and takes nothing new"};
}

// A template writes at least a mark for each.
std::optional<ApiError> too_many_messages(const Json& body, int64_t context) {
  for (const char* name : {"messages", "input"}) {
    const Json& list = spec_field(body, name);
    if (!list.is_array() || list.size() <= static_cast<size_t>(context)) continue;
    return ApiError{.type = std::string(kTooLong),
                    .code = "context_length_exceeded",
                    .message = formatted("{} {}, the context takes {} tokens (see --ctx-size)",
                                         list.size(), name, context),
                    .param = name};
  }
  return std::nullopt;
}

}  // namespace moeflux::serve
