// The bytes of a tokenizer.model and, where they end with a JSON object behind a zero byte and a
// form feed, of a tokenizer_config.json: refused or a tokenizer that encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/detokenizer.h"
#include "text/encoding/utf8.h"
#include "text/formats/sentencepiece_model.h"

namespace {

constexpr std::string_view kText =
    " It's  12345 <|im_end|> caf\xC3\xA9 e\xCC\x81 <s> \xE2\x80\xA6\t\r\n\n "
    "\xE6\xBC\xA2\xE2\x96\x81 "
    "\xF0\x9F\x98\x80\xFF\xE2\x82 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ";

void require(bool condition) {
  if (!condition) std::abort();
}

void exercise(const moeflux::Tokenizer& tokenizer) {
  for (const bool match : {false, true}) {
    const auto ids = tokenizer.encode(kText, {.match_added_tokens = match});
    require(ids.ok());
    for (const moeflux::TokenId id : *ids) require(tokenizer.contains(id));
    const std::string text = tokenizer.decode(*ids);
    require(moeflux::is_valid_utf8(text));
    moeflux::Detokenizer stream(tokenizer);
    std::string streamed;
    for (const moeflux::TokenId id : *ids) streamed += stream.push(id);
    require(streamed + stream.finish() == text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t split = input.rfind(std::string_view("\0\f", 2));
  const std::string_view config = split == input.npos ? "" : input.substr(split + 2);
  const auto tokenizer = moeflux::parse_sentencepiece(input.substr(0, split), config, "fuzz");
  if (tokenizer.ok()) {
    exercise(*tokenizer);
  } else {
    require(!tokenizer.error().message().empty());
  }
  return 0;
}
