// A body of a request to OpenAI's interfaces, of chat and of completions: it is decoded to
// something within its limits, or refused by an error that names what is wrong. Nothing else may
// happen.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/format.h"
#include "schedule/text_request.h"
#include "serve/openai/chat.h"
#include "serve/openai/completions.h"

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

/// One whose tokens are the bytes.
const moeflux::Tokenizer& tokenizer_of_bytes() {
  static const moeflux::Tokenizer* kTokenizer = [] {
    moeflux::Json vocabulary = moeflux::Json::object();
    // GPT-2's alphabet: bytes that print spell themselves, others take the letters from 256 on.
    int other = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool prints = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
      const int letter = prints ? byte : other++;
      std::string text;
      if (letter >= 128) text += static_cast<char>(0xC0 | (letter >> 6));
      text += static_cast<char>(letter < 128 ? letter : 0x80 | (letter & 0x3F));
      vocabulary[text] = byte;
    }
    const moeflux::Json bytes = {{"type", "ByteLevel"},
                                 {"add_prefix_space", false},
                                 {"trim_offsets", false},
                                 {"use_regex", true}};
    const moeflux::Json json = {
        {"added_tokens", moeflux::Json::array()},
        {"normalizer", nullptr},
        {"pre_tokenizer", bytes},
        {"post_processor", nullptr},
        {"decoder", bytes},
        {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", moeflux::Json::array()}}}};
    auto tokenizer = moeflux::Tokenizer::parse(json.dump(), "bytes");
    if (!tokenizer.ok()) std::fprintf(stderr, "%s\n", tokenizer.error().to_string().c_str());
    expect(tokenizer.ok(), "a tokenizer");
    return new moeflux::Tokenizer(std::move(tokenizer).value());
  }();
  return *kTokenizer;
}

void expect_mistake(const ApiError& error) {
  expect(error.status >= 400 && error.status < 500, "the client's mistake");
  expect(!error.message.empty(), "a message");
}

void try_completion(const moeflux::Json& body) {
  const auto decoded = moeflux::serve::decode_completion_request(body, {}, tokenizer_of_bytes());
  if (const auto* error = std::get_if<ApiError>(&decoded)) return expect_mistake(*error);
  const auto& request = std::get<moeflux::serve::RawRequest>(decoded);
  expect_within_limits(request.generation);
  expect(!request.prompts.empty() && request.prompts.size() <= 256, "1 to 256 prompts");
  for (const auto& prompt : request.prompts) expect(!prompt.empty(), "no empty prompt");
  expect(request.logprobs <= moeflux::kTopLogprobsMax, "at most 20 log-probabilities");
}

void try_chat(const moeflux::Json& body) {
  const auto decoded = moeflux::serve::decode_chat_request(body, {});
  if (const auto* error = std::get_if<ApiError>(&decoded)) return expect_mistake(*error);
  const auto& request = std::get<ChatRequest>(decoded);
  expect_within_limits(request.generation);
  expect(request.top_logprobs <= moeflux::kTopLogprobsMax, "at most 20 log-probabilities");
  expect(request.conversation.messages.is_array(), "messages");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto body = moeflux::parse_json(text, "the body");
  if (!body.ok()) return 0;
  try_chat(*body);
  try_completion(*body);
  return 0;
}
