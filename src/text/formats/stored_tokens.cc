// Errors name tokens by their id and keys as GGUF does.
#include "text/formats/stored_tokens.h"

#include <charconv>
#include <unordered_set>

#include "base/format.h"
#include "base/json.h"

namespace moeflux {

TokenKind kind_of(const StoredVocabulary& stored, size_t id) {
  return static_cast<TokenKind>(stored.token_type[id]);
}

std::optional<char> byte_of_spelling(std::string_view spelling) {
  uint8_t byte = 0;
  const bool is_framed =
      spelling.size() == 6 && spelling.starts_with("<0x") && spelling.ends_with('>');
  if (!is_framed) return std::nullopt;
  const char* digits = spelling.data() + 3;
  const auto [end, problem] = std::from_chars(digits, digits + 2, byte, 16);
  if (problem != std::errc() || end != digits + 2) return std::nullopt;
  return static_cast<char>(byte);
}

Result<char> byte_of_token(size_t id, std::string_view spelling) {
  if (const auto byte = byte_of_spelling(spelling)) return *byte;
  return make_error(ErrorCode::kCorruption, "byte token {} is {}, expected <0x00> to <0xFF>", id,
                    json_excerpt(spelling));
}

Result<std::pair<std::string_view, std::string_view>> parts_of_merge(const StoredVocabulary& stored,
                                                                     size_t place) {
  const std::string_view merge = stored.merges[place];
  const size_t space = merge.find(' ');
  if (space == merge.npos || merge.find(' ', space + 1) != merge.npos) {
    return make_error(ErrorCode::kCorruption, "merge {} is {}, expected two tokens and one space",
                      place, json_excerpt(stored.merges[place]));
  }
  return std::pair(merge.substr(0, space), merge.substr(space + 1));
}

Status read_affixes(const StoredVocabulary& stored, bool adds_bos, TokenizerParts* parts) {
  const auto read = [&](std::string_view key, std::optional<bool> stated, bool fallback,
                        std::optional<int64_t> id, std::vector<TokenId>* out) -> Status {
    if (!stated.value_or(fallback)) return {};
    if (id && parts->vocabulary.contains(static_cast<TokenId>(*id))) {
      out->push_back(static_cast<TokenId>(*id));
    } else if (stated) {
      return make_error(ErrorCode::kCorruption,
                        "tokenizer.ggml.{} is true, but there is no such token", key);
    }
    return {};
  };
  MF_RETURN_IF_ERROR(
      read("add_bos_token", stored.add_bos_token, adds_bos, stored.bos_token_id, &parts->prefix));
  return read("add_eos_token", stored.add_eos_token, false, stored.eos_token_id, &parts->suffix);
}

Status check_added_tokens(const std::vector<AddedToken>& tokens) {
  std::unordered_set<std::string_view> seen;
  for (const AddedToken& token : tokens) {
    if (!seen.insert(token.content).second) {
      return make_error(ErrorCode::kCorruption, "added token {} is in the vocabulary twice",
                        json_excerpt(token.content));
    }
  }
  return {};
}

}  // namespace moeflux
