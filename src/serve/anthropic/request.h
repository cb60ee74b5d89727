// Anthropic's messages: what a request's JSON asks for. Fields and blocks are those of
// anthropic-sdk-python's types; what chat completions know beside them is taken, too.
#pragma once

#include "base/json.h"
#include "serve/request/chat_request.h"

namespace moeflux::serve {

struct MessagesOptions {
  /// Leaves out what prompt_nonces.h names, and puts a system message in the middle of the
  /// conversation where it does not change the beginning of the prompt.
  bool steady_prompts = true;
  /// The template takes a system message that is not the first.
  bool late_system = true;
  bool counts_only = false;  // max_tokens may be absent
};

DecodedChat decode_messages_request(const Json& body, const RequestDefaults& defaults,
                                    const MessagesOptions& options = {});

}  // namespace moeflux::serve
