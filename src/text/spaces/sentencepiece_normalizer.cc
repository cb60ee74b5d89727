// The order of steps is sentencepiece's: leading spaces go first, then each rule's result is
// escaped, then trailing spaces go. Its table is a "Darts-clone" array: a word holds a label, an
// offset to its children by exclusive or, and whether a value stands at that offset.
#include "text/spaces/sentencepiece_normalizer.h"

#include "base/format.h"
#include "text/encoding/utf8.h"
#include "text/spaces/space_symbol.h"

namespace moeflux {
namespace {

uint32_t word_at(std::string_view bytes, size_t index) {
  uint32_t word = 0;
  for (size_t i = 0; i < 4; ++i) {
    word |= uint32_t{static_cast<uint8_t>(bytes[4 * index + i])} << (8 * i);
  }
  return word;
}

uint32_t label_of(uint32_t word) { return word & 0x800000FFu; }
uint32_t offset_of(uint32_t word) { return (word >> 10) << ((word & 0x200u) >> 6); }
bool has_value(uint32_t word) { return (word & 0x100u) != 0; }

}  // namespace

std::vector<std::pair<std::string, AddedToken>> SentencePieceNormalizer::needles_of(
    const std::vector<AddedToken>& symbols) {
  std::vector<std::pair<std::string, AddedToken>> needles;
  for (const AddedToken& symbol : symbols) needles.emplace_back(symbol.content, symbol);
  return needles;
}

Result<SentencePieceNormalizer> SentencePieceNormalizer::create(SentencePieceRules rules) {
  SentencePieceNormalizer normalizer(std::move(rules));
  const std::string_view map = normalizer.rules_.precompiled_charsmap;
  if (map.empty()) return normalizer;
  const uint32_t trie_bytes = map.size() < 4 ? 0 : word_at(map, 0);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes >= map.size() - 4) {
    return make_error(ErrorCode::kCorruption,
                      "precompiled_charsmap of {} bytes: a trie of {} bytes, expected a multiple "
                      "of 4 and strings behind it",
                      map.size(), trie_bytes);
  }
  if (map.back() != '\0') {
    return make_error(ErrorCode::kCorruption, "precompiled_charsmap does not end with a zero");
  }
  normalizer.words_count_ = trie_bytes / 4;
  normalizer.strings_begin_ = 4 + size_t{trie_bytes};
  return normalizer;
}

SentencePieceNormalizer::Step SentencePieceNormalizer::longest_rule(std::string_view rest) const {
  Step found{{}, 0};
  if (words_count_ == 0) return found;
  const std::string_view map = rules_.precompiled_charsmap;
  const std::string_view words = map.substr(4);
  const std::string_view strings = map.substr(strings_begin_);
  size_t node = offset_of(word_at(words, 0));
  for (size_t i = 0; i < rest.size(); ++i) {
    node ^= static_cast<uint8_t>(rest[i]);
    if (node >= words_count_) break;
    const uint32_t word = word_at(words, node);
    if (label_of(word) != static_cast<uint8_t>(rest[i])) break;
    node ^= offset_of(word);
    if (!has_value(word)) continue;
    if (node >= words_count_) break;
    const uint32_t value = word_at(words, node) & 0x7FFFFFFFu;
    if (value >= strings.size()) break;
    found = {strings.substr(value, strings.find('\0', value) - value), i + 1};
  }
  // A rule of a broken table may end inside a character; what is left would be no UTF-8.
  if (found.bytes_count > 0 && !is_valid_utf8(rest.substr(0, found.bytes_count))) return {{}, 0};
  if (!is_valid_utf8(found.text)) return {{}, 0};
  return found;
}

SentencePieceNormalizer::Step SentencePieceNormalizer::next(std::string_view rest) const {
  if (const size_t symbol = symbols_.longest_at(rest, 0).bytes_count; symbol > 0) {
    return {rest.substr(0, symbol), symbol};
  }
  const Step rule = longest_rule(rest);
  if (rule.bytes_count > 0) return rule;
  const size_t count = next_utf8(rest).bytes_count;
  return {rest.substr(0, count), count};
}

void SentencePieceNormalizer::append(std::string_view text, std::string* out) const {
  for (const char c : text) {
    if (c == ' ' && rules_.escape_whitespaces) {
      out->append(kSpaceSymbol);
    } else {
      out->push_back(c);
    }
  }
}

std::string SentencePieceNormalizer::apply(std::string_view text) const {
  std::string out;
  const bool removes = rules_.remove_extra_whitespaces;
  while (removes && !text.empty()) {
    const Step step = next(text);
    if (step.text != " ") break;
    text.remove_prefix(step.bytes_count);
  }
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 2 + 8);
  if (rules_.add_dummy_prefix && !rules_.whitespace_as_suffix) append(" ", &out);
  bool after_space = removes;
  while (!text.empty()) {
    Step step = next(text);
    text.remove_prefix(step.bytes_count);
    while (after_space && step.text.starts_with(' ')) step.text.remove_prefix(1);
    if (step.text.empty()) continue;
    append(step.text, &out);
    after_space = removes && step.text.ends_with(' ');
  }
  const std::string_view space = rules_.escape_whitespaces ? kSpaceSymbol : " ";
  while (removes && out.ends_with(space)) out.erase(out.size() - space.size());
  if (rules_.add_dummy_prefix && rules_.whitespace_as_suffix) append(" ", &out);
  return out;
}

}  // namespace moeflux
