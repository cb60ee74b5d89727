// Ollama's chat and generate: what a request's JSON asks for. Fields are those of ollama-python.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "base/json.h"
#include "serve/chat_request.h"
#include "serve/openai/chat.h"

namespace moeflux::serve {

struct OllamaRequest {
  ChatRequest chat;
  /// There is nothing to answer: the client wants the model loaded.
  bool is_empty = false;
  /// The prompt goes to the model as it is, without a template.
  bool is_raw = false;
  std::string raw_prompt = {};
};
using DecodedOllama = std::variant<OllamaRequest, ApiError>;

/// `context_length`: more than it cannot be asked for.
DecodedOllama decode_ollama_chat(const Json& body, const RequestDefaults& defaults,
                                 int64_t context_length);
DecodedOllama decode_ollama_generate(const Json& body, const RequestDefaults& defaults,
                                     int64_t context_length);

}  // namespace moeflux::serve
