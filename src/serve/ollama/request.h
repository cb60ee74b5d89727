// Ollama's chat and generate: what a request's JSON asks for. Fields are those of ollama-python.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "serve/request/chat_request.h"

namespace moeflux::serve {

struct OllamaRequest {
  ChatRequest chat;
  /// There is nothing to answer: the client wants the model loaded.
  bool is_empty = false;
  bool unloads = false;  // empty, with a keep_alive of 0
  /// The prompt is answered with, and nothing is generated.
  bool shows_prompt = false;
  /// More tokens of context than there are were asked for; the answer has what there is.
  std::optional<int64_t> context_asked;
  /// Fewer were: prompt and answer have no more than these together.
  std::optional<int64_t> context_max;
  // The members below are fields of generate.
  /// The prompt goes to the model as it is, without a template.
  bool is_raw = false;
  std::string prompt = {};
  std::string suffix = {};            // behind the gap that the answer fills; empty: no gap
  std::vector<TokenId> context = {};  // of the answer before, which the prompt goes on from
  std::optional<std::string> chat_template = {};  // what is to be used in place of the model's
};
using DecodedOllama = std::variant<OllamaRequest, ApiError>;

DecodedOllama decode_ollama_chat(const Json& body, const RequestDefaults& defaults,
                                 int64_t context_length);
DecodedOllama decode_ollama_generate(const Json& body, const RequestDefaults& defaults,
                                     int64_t context_length);

}  // namespace moeflux::serve
