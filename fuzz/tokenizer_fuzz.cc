// The bytes of a tokenizer.json: parse() refuses or gives a tokenizer that encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/detokenizer.h"
#include "text/encoding/utf8.h"
#include "text/tokenizer.h"

namespace {

constexpr std::string_view kText =
    "It's 12345 <|im_end|> caf\xC3\xA9 e\xCC\x81  \t\r\n\n \xE6\xBC\xA2\xE5\xAD\x97 "
    "\xF0\x9F\x98\x80\xFF\xE2\x82 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

void require(bool condition) {
  if (!condition) std::abort();
}

void exercise(const moeflux::Tokenizer& tokenizer) {
  for (const bool special : {false, true}) {
    const auto ids =
        tokenizer.encode(kText, {.add_special_tokens = special, .match_added_tokens = special});
    if (!ids.ok()) continue;  // a pattern may run out of steps
    for (const moeflux::TokenId id : *ids) require(tokenizer.contains(id));
    const std::string text = tokenizer.decode(*ids, {.skip_special = special});
    require(moeflux::is_valid_utf8(text));
    moeflux::Detokenizer stream(tokenizer, {.skip_special = special});
    std::string streamed;
    for (const moeflux::TokenId id : *ids) streamed += stream.push(id);
    require(streamed + stream.finish() == text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = moeflux::Tokenizer::parse(json, "fuzz");
  if (tokenizer.ok()) {
    exercise(*tokenizer);
  } else {
    require(!tokenizer.error().message().empty());
  }
  return 0;
}
