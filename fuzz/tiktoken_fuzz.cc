// The bytes of a tiktoken.model and, after the first zero byte, of a tokenizer_config.json: refused
// or a tokenizer that encodes and decodes. The 256 single bytes, without which every table would be
// refused, are put in front of the lines unless a form feed is the first byte.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/encoding/utf8.h"
#include "text/formats/tiktoken.h"

namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::string_view kText =
    "It's 12345 <|im_end|> caf\xC3\xA9 [BOS]<think>\t\r\n\n \xE6\xBC\xA2\xE5\xAD\x97 abcabc "
    "\xF0\x9F\x98\x80\xFF\xE2\x82 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

void require(bool condition) {
  if (!condition) std::abort();
}

std::string single_bytes() {
  std::string lines;
  for (size_t byte = 0; byte < 256; ++byte) {
    lines += kDigits[byte >> 2];
    lines += kDigits[(byte & 3) << 4];
    lines += "== " + std::to_string(byte) + "\n";
  }
  return lines;
}

void exercise(const moeflux::Tokenizer& tokenizer) {
  for (const bool match : {false, true}) {
    const auto ids = tokenizer.encode(kText, {.match_added_tokens = match});
    require(ids.ok());
    for (const moeflux::TokenId id : *ids) require(tokenizer.contains(id));
    require(tokenizer.decode(*ids) == moeflux::replace_invalid_utf8(kText));
  }
  for (moeflux::TokenId id = -1; id <= tokenizer.vocab_size(); ++id) {
    require(moeflux::is_valid_utf8(tokenizer.token_text(id)));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  const bool is_whole = input.starts_with('\f');
  if (is_whole) input.remove_prefix(1);
  const size_t zero = input.find('\0');
  const std::string table = (is_whole ? "" : single_bytes()) + std::string(input.substr(0, zero));
  const std::string_view config = zero == input.npos ? "{}" : input.substr(zero + 1);
  const auto tokenizer = moeflux::parse_tiktoken(table, config, "fuzz");
  if (tokenizer.ok()) {
    exercise(*tokenizer);
  } else {
    require(!tokenizer.error().message().empty());
  }
  return 0;
}
