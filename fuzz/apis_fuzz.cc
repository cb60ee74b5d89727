// A body of a request to Anthropic's, Ollama's and OpenAI's further interfaces: each decoder makes
// of it something within its limits, or refuses it by an error that names what is wrong. The first
// byte chooses the interface.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <variant>

#include "schedule/text_request.h"
#include "serve/anthropic/prompt_nonces.h"
#include "serve/anthropic/request.h"
#include "serve/ollama/request.h"
#include "serve/responses/request.h"

namespace {

using moeflux::Json;
using moeflux::serve::ApiError;
using moeflux::serve::ChatRequest;

void expect(bool fact, const char* what) {
  if (fact) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

void check(const ApiError& error) {
  expect(error.status >= 400 && error.status < 500, "the client's mistake");
  expect(!error.message.empty(), "a message");
}

void check(const ChatRequest& request) {
  expect(request.generation.choices == 1, "one choice");
  expect(request.generation.stop.size() <= 16, "at most 16 stop strings");
  expect(validate(request.generation.sampler).ok(), "a sampler that can be");
  expect(request.top_logprobs <= moeflux::kTopLogprobsMax, "at most 20 log-probabilities");
  for (const Json& message : request.conversation.messages) {
    expect(message.is_object() && message["role"].is_string(), "messages with roles");
  }
}

void messages(const Json& body, bool steady) {
  const auto decoded = moeflux::serve::decode_messages_request(
      body, {}, {.steady_prompts = steady, .late_system = !steady});
  if (const auto* error = std::get_if<ApiError>(&decoded)) return check(*error);
  check(std::get<ChatRequest>(decoded));
}

void responses(const Json& body) {
  using moeflux::serve::ResponsesRequest;
  const auto decoded = moeflux::serve::decode_responses_request(body, {}, Json::array());
  if (const auto* error = std::get_if<ApiError>(&decoded)) return check(*error);
  const auto& request = std::get<ResponsesRequest>(decoded);
  check(request.chat);
  // A request may go on from stored items.
  const auto again = moeflux::serve::decode_responses_request(body, {}, request.input);
  expect(std::holds_alternative<ResponsesRequest>(again), "kept items are read again");
}

void ollama(const Json& body, bool is_chat) {
  const auto decoded = is_chat ? moeflux::serve::decode_ollama_chat(body, {}, 4096)
                               : moeflux::serve::decode_ollama_generate(body, {}, 4096);
  if (const auto* error = std::get_if<ApiError>(&decoded)) return check(*error);
  const auto& request = std::get<moeflux::serve::OllamaRequest>(decoded);
  if (!request.is_empty) check(request.chat);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string kept = moeflux::serve::without_nonces(text);
  expect(kept.size() <= text.size(), "leaving out makes nothing longer");
  const auto body = moeflux::parse_json(text, "the body");
  if (!body.ok()) return 0;
  switch (data[0] % 5) {
    case 0:
      messages(*body, true);
      break;
    case 1:
      messages(*body, false);
      break;
    case 2:
      responses(*body);
      break;
    case 3:
      ollama(*body, true);
      break;
    default:
      ollama(*body, false);
      break;
  }
  return 0;
}
