// Vocabularies of text, in which U+2581 is a space and bytes are spelled <0xNN>.
#include <algorithm>
#include <string>

#include "base/format.h"
#include "base/json.h"
#include "text/formats/stored_tokens.h"
#include "text/spaces/space_symbol.h"

namespace moeflux {
namespace {

// A cut at each position of each token is looked up: a bound on what a file can make us do.
constexpr size_t kMergedBytesMax = 1024;

// Sorts tokens by kind into the places where they work.
class CharacterTokens {
 public:
  explicit CharacterTokens(const StoredVocabulary& stored) : stored_(stored) {
    fallback_.by_byte.fill(-1);
    const auto kind = static_cast<int32_t>(TokenKind::kByte);
    const auto& kinds = stored.token_type;
    has_byte_kind_ = std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  }

  Status read() {
    for (size_t id = 0; id < stored_.tokens.size(); ++id) MF_RETURN_IF_ERROR(read_token(id));
    MF_RETURN_IF_ERROR(check_added_tokens(parts_.added_tokens));
    MF_RETURN_IF_ERROR(check_added_tokens(user_defined_));
    return read_fallback();
  }

  TokenKind kind(size_t id) const {
    const TokenKind stated = kind_of(stored_, id);
    // Some converters call bytes normal tokens.
    const bool is_byte = !has_byte_kind_ && stated == TokenKind::kNormal &&
                         byte_of_spelling(stored_.tokens[id]).has_value();
    return is_byte ? TokenKind::kByte : stated;
  }

  const CharacterFallback& fallback() const { return fallback_; }
  TokenId ids_end() const { return static_cast<TokenId>(stored_.tokens.size()); }
  std::vector<CharacterBpe::Symbol> symbols;  // of tokens that may merge
  std::vector<AddedToken> take_user_defined() { return std::move(user_defined_); }
  TokenizerParts take_parts() { return std::move(parts_); }

 private:
  Status read_token(size_t id) {
    const std::string& text = stored_.tokens[id];
    const auto token = static_cast<TokenId>(id);
    switch (kind(id)) {
      case TokenKind::kNormal:
      case TokenKind::kUnused:
        if (text.empty()) return {};
        return add_symbol(id);
      case TokenKind::kByte: {
        MF_ASSIGN_OR_RETURN(const char byte, byte_of_token(id, text));
        TokenId& known = fallback_.by_byte[static_cast<uint8_t>(byte)];
        if (known >= 0) {
          return make_error(ErrorCode::kCorruption, "tokens {} and {} are both {}", known, id,
                            text);
        }
        known = token;
        return parts_.vocabulary.add(token, std::string_view(&byte, 1), false);
      }
      case TokenKind::kUserDefined:
        if (text.empty()) return {};
        user_defined_.push_back({.id = token, .content = text});
        return show(token, with_spaces(text));
      case TokenKind::kUnknown:
        if (fallback_.unknown < 0) fallback_.unknown = token;
        if (text.empty()) return {};
        parts_.added_tokens.push_back({.id = token, .content = text, .special = true});
        return show(token, stored_.unknown_surface.value_or(text));
      case TokenKind::kControl:
        if (text.empty()) return {};
        parts_.added_tokens.push_back({.id = token, .content = text, .special = true});
        return show(token, text);
    }
    __builtin_unreachable();
  }

  Status add_symbol(size_t id) {
    const std::string& text = stored_.tokens[id];
    if (text.size() > kMergedBytesMax) {
      return make_error(ErrorCode::kUnsupported, "token {} of {} bytes, at most {} can be merged",
                        id, text.size(), kMergedBytesMax);
    }
    symbols.push_back({.text = text,
                       .id = static_cast<TokenId>(id),
                       .score = stored_.scores.empty() ? 0 : stored_.scores[id],
                       .is_unused = kind(id) == TokenKind::kUnused});
    return show(static_cast<TokenId>(id), with_spaces(text));
  }

  // Different spellings may show alike, and then the first is found.
  Status show(TokenId id, std::string_view text) {
    return parts_.vocabulary.add(id, text, !parts_.vocabulary.find(text));
  }

  Status read_fallback() {
    auto& bytes = fallback_.by_byte;
    fallback_.has_bytes = std::any_of(bytes.begin(), bytes.end(), [](TokenId t) { return t >= 0; });
    if (stored_.unknown_token_id) {
      fallback_.unknown = static_cast<TokenId>(*stored_.unknown_token_id);
    }
    if (fallback_.has_bytes || parts_.vocabulary.contains(fallback_.unknown)) return {};
    return make_error(ErrorCode::kCorruption, "neither tokens of bytes nor an unknown token");
  }

  const StoredVocabulary& stored_;
  bool has_byte_kind_ = false;
  CharacterFallback fallback_;
  TokenizerParts parts_;
  std::vector<AddedToken> user_defined_;
};

}  // namespace

Result<Tokenizer> make_from_scores(const StoredVocabulary& stored) {
  CharacterTokens tokens(stored);
  MF_RETURN_IF_ERROR(tokens.read());
  MF_ASSIGN_OR_RETURN(CharacterBpe bpe, CharacterBpe::create_from_scores(
                                            tokens.symbols, tokens.fallback(), tokens.ids_end()));
  MF_ASSIGN_OR_RETURN(
      SentencePieceNormalizer normalizer,
      SentencePieceNormalizer::create(
          {.precompiled_charsmap = stored.precompiled_charsmap,
           .add_dummy_prefix = stored.add_space_prefix.value_or(true),
           .remove_extra_whitespaces = stored.remove_extra_whitespaces.value_or(false),
           .escape_whitespaces = stored.escape_whitespaces,
           .whitespace_as_suffix = stored.whitespace_as_suffix,
           .symbols = tokens.take_user_defined()}));
  TokenizerParts parts = tokens.take_parts();
  parts.character_bpe = std::move(bpe);
  parts.sentencepiece = std::move(normalizer);
  const bool removes_spaces = stored.remove_extra_whitespaces.value_or(false);
  parts.leading_space = {.first = removes_spaces || stored.add_space_prefix.value_or(true),
                         .all = removes_spaces};
  MF_ASSIGN_OR_RETURN(parts.pre_tokenizer, cuts_before_spaces(tokens.symbols));
  MF_RETURN_IF_ERROR(read_affixes(stored, true, &parts));
  parts.end_tokens = end_of_text_tokens(stored);
  return Tokenizer(std::move(parts));
}

Result<Tokenizer> make_from_character_merges(const StoredVocabulary& stored, bool always_adds_bos) {
  CharacterTokens tokens(stored);
  MF_RETURN_IF_ERROR(tokens.read());
  TokenizerParts parts = tokens.take_parts();
  // Added tokens may be what merges make. Converters write the spaces of user-defined ones.
  std::vector<std::string> spelled;
  spelled.reserve(stored.tokens.size());
  for (AddedToken& token : tokens.take_user_defined()) {
    spelled.push_back(with_symbols(token.content));
    tokens.symbols.push_back({.text = spelled.back(), .id = token.id});
    const bool is_blank = token.content.find_first_not_of(' ') == token.content.npos ||
                          spelled.back().size() != token.content.size();
    if (!is_blank) parts.added_tokens.push_back(std::move(token));
  }
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  merges.reserve(stored.merges.size());
  for (size_t i = 0; i < stored.merges.size(); ++i) {
    MF_ASSIGN_OR_RETURN(const auto pair, parts_of_merge(stored, i));
    merges.push_back(pair);
  }
  MF_ASSIGN_OR_RETURN(parts.character_bpe,
                      CharacterBpe::create_from_merges(tokens.symbols, tokens.fallback(),
                                                       tokens.ids_end(), merges));
  MF_ASSIGN_OR_RETURN(parts.sentencepiece,
                      SentencePieceNormalizer::create(
                          {.add_dummy_prefix = false, .remove_extra_whitespaces = false}));
  MF_ASSIGN_OR_RETURN(parts.pre_tokenizer, cuts_before_spaces(tokens.symbols));
  StoredVocabulary affixes{.bos_token_id = stored.bos_token_id,
                           .eos_token_id = stored.eos_token_id,
                           .add_bos_token = stored.add_bos_token,
                           .add_eos_token = stored.add_eos_token};
  if (always_adds_bos) affixes.add_bos_token = std::nullopt;
  MF_RETURN_IF_ERROR(read_affixes(affixes, always_adds_bos, &parts));
  parts.end_tokens = end_of_text_tokens(stored);
  return Tokenizer(std::move(parts));
}

}  // namespace moeflux
