// OpenAI's chat completions: what a request's JSON asks for. Fields are those of openai-python's
// types/chat, with llama.cpp's additions.
#pragma once

#include "base/json.h"
#include "serve/request/chat_request.h"

namespace moeflux::serve {

DecodedChat decode_chat_request(const Json& body, const RequestDefaults& defaults);

}  // namespace moeflux::serve
