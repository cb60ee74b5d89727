// A body of a request to OpenAI's interfaces: it is decoded to something within its limits, or
// refused by an error that names what is wrong. Nothing else may happen.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <variant>

#include "serve/openai_chat.h"

namespace {

using moeflux::serve::ApiError;
using moeflux::serve::ChatRequest;
using moeflux::serve::GenerationFields;

void expect(bool fact, const char* what) {
  if (fact) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

void expect_within_limits(const GenerationFields& generation) {
  expect(generation.choices >= 1 && generation.choices <= 8, "one to eight choices");
  expect(generation.stop.size() <= 16, "at most 16 stop strings");
  expect(validate(generation.sampler).ok(), "a sampler that can be");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto body = moeflux::parse_json(text, "the body");
  if (!body.ok()) return 0;
  const auto decoded = moeflux::serve::decode_chat_request(*body, {});
  if (const auto* error = std::get_if<ApiError>(&decoded)) {
    expect(error->status >= 400 && error->status < 500, "the client's mistake");
    expect(!error->message.empty(), "a message");
    return 0;
  }
  const auto& request = std::get<ChatRequest>(decoded);
  expect_within_limits(request.generation);
  expect(request.top_logprobs <= moeflux::kTopLogprobsMax, "at most 20 log-probabilities");
  expect(request.conversation.messages.is_array(), "messages");
  return 0;
}
