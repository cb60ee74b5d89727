// A vocabulary as GGUF stores it, written as lines: model, pre, bos, eos and unknown ids, then a
// line a token (kind, score and text), an empty line and a line a merge. It is refused or a
// tokenizer that encodes and decodes. The 256 bytes are put in front of the tokens unless a form
// feed comes first.
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/encoding/byte_alphabet.h"
#include "text/encoding/utf8.h"
#include "text/formats/stored_vocabulary.h"

namespace {

constexpr std::string_view kText =
    " It's  12345 <|im_end|> caf\xC3\xA9 e\xCC\x81 <s> \t\r\n\n \xE6\xBC\xA2\xE2\x96\x81 "
    "\xF0\x9F\x98\x80\xFF\xE2\x82 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ";

void require(bool condition) {
  if (!condition) std::abort();
}

std::string_view take(std::string_view* rest, char end) {
  const std::string_view found = rest->substr(0, rest->find(end));
  rest->remove_prefix(std::min(rest->size(), found.size() + 1));
  return found;
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc()) return std::nullopt;
  return value;
}

void add(moeflux::StoredVocabulary* stored, std::string text, int32_t kind, float score) {
  stored->tokens.push_back(std::move(text));
  stored->token_type.push_back(kind);
  stored->scores.push_back(score);
}

void add_bytes(moeflux::StoredVocabulary* stored) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    char spelled[8];
    std::snprintf(spelled, sizeof(spelled), "<0x%02X>", byte);
    if (stored->model == "gpt2") {
      add(stored, moeflux::spelling_of_bytes(std::string_view(&c, 1)), 1, 0);
    } else {
      add(stored, spelled, 6, 0);
    }
  }
}

moeflux::StoredVocabulary read(std::string_view rest) {
  moeflux::StoredVocabulary stored;
  const bool is_whole = rest.starts_with('\f');
  if (is_whole) rest.remove_prefix(1);
  stored.model = std::string(take(&rest, '\n'));
  stored.pre = std::string(take(&rest, '\n'));
  stored.bos_token_id = number(take(&rest, '\n'));
  stored.eos_token_id = number(take(&rest, '\n'));
  stored.unknown_token_id = number(take(&rest, '\n'));
  if (!is_whole) add_bytes(&stored);
  while (!rest.empty() && !rest.starts_with('\n')) {
    std::string_view line = take(&rest, '\n');
    const auto kind = number(take(&line, ' ')).value_or(1);
    const auto score = static_cast<float>(number(take(&line, ' ')).value_or(0));
    add(&stored, std::string(line), static_cast<int32_t>(kind), score);
  }
  take(&rest, '\n');
  while (!rest.empty()) stored.merges.emplace_back(take(&rest, '\n'));
  return stored;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto stored = read(std::string_view(reinterpret_cast<const char*>(data), size));
  const auto tokenizer = moeflux::make_tokenizer(stored, "fuzz");
  for (const moeflux::TokenId id : moeflux::end_of_text_tokens(stored)) {
    require(id >= 0 && static_cast<size_t>(id) < stored.tokens.size());
  }
  if (!tokenizer.ok()) {
    require(!tokenizer.error().message().empty());
    return 0;
  }
  for (const bool match : {false, true}) {
    const auto ids =
        tokenizer->encode(kText, {.add_special_tokens = match, .match_added_tokens = match});
    require(ids.ok());
    for (const moeflux::TokenId id : *ids) require(tokenizer->contains(id));
    require(moeflux::is_valid_utf8(tokenizer->decode(*ids)));
  }
  return 0;
}
