// Checks what every model shares, then one builder a model.
#include "text/stored_vocabulary.h"

#include <algorithm>

#include "base/format.h"
#include "base/json.h"
#include "text/byte_alphabet.h"
#include "text/named_splits.h"
#include "text/stored_tokens.h"

namespace moeflux {
namespace {

// Names of control tokens that end a turn or a text. Harmony's <|end|> only ends a message; what
// follows <|tool_response> is the tool's to say.
constexpr std::string_view kEndNames[] = {
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>",
    "<|return|>", "<|call|>",      "<|user|>",   "<|observation|>", "<end_of_turn>",
    "<turn|>",    "[EOT]",         "[e~[",       "<|tool_response>"};

Status check_id(std::string_view key, const std::optional<int64_t>& id, size_t count) {
  if (!id || (*id >= 0 && static_cast<uint64_t>(*id) < count)) return {};
  return make_error(ErrorCode::kCorruption, "{} is {}, but there are {} tokens", key, *id, count);
}

Status check_lists(const StoredVocabulary& stored) {
  const size_t count = stored.tokens.size();
  if (count == 0) return make_error(ErrorCode::kCorruption, "a vocabulary without tokens");
  const auto check_length = [&](std::string_view key, size_t length) -> Status {
    if (length == 0 || length == count) return {};
    return make_error(ErrorCode::kCorruption, "{} has {} entries for {} tokens", key, length,
                      count);
  };
  MF_RETURN_IF_ERROR(check_length("scores", stored.scores.size()));
  MF_RETURN_IF_ERROR(check_length("token_type", stored.token_type.size()));
  for (size_t id = 0; id < stored.token_type.size(); ++id) {
    const int32_t type = stored.token_type[id];
    if (type < 1 || type > 6) {
      return make_error(ErrorCode::kCorruption, "token {} has type {}, expected 1 to 6", id, type);
    }
  }
  MF_RETURN_IF_ERROR(check_id("bos_token_id", stored.bos_token_id, count));
  MF_RETURN_IF_ERROR(check_id("eos_token_id", stored.eos_token_id, count));
  MF_RETURN_IF_ERROR(check_id("eot_token_id", stored.eot_token_id, count));
  MF_RETURN_IF_ERROR(check_id("eom_token_id", stored.eom_token_id, count));
  MF_RETURN_IF_ERROR(check_id("unknown_token_id", stored.unknown_token_id, count));
  return check_id("padding_token_id", stored.padding_token_id, count);
}

Status add_token(const StoredVocabulary& stored, size_t id, TokenizerParts* parts) {
  const std::string& spelling = stored.tokens[id];
  const TokenKind kind = kind_of(stored, id);
  const auto bytes = bytes_of_spelling(spelling);
  if (kind == TokenKind::kNormal) {
    return parts->vocabulary.add(static_cast<int64_t>(id), bytes ? *bytes : spelling,
                                 bytes.has_value());
  }
  if (kind == TokenKind::kByte) {
    MF_ASSIGN_OR_RETURN(const char byte, byte_of_token(id, spelling));
    return parts->vocabulary.add(static_cast<int64_t>(id), std::string_view(&byte, 1), false);
  }
  parts->added_tokens.push_back({.id = static_cast<TokenId>(id),
                                 .content = spelling,
                                 .special = kind != TokenKind::kUserDefined});
  // Findable when it may be a merge's result as well, as in tokenizer.json.
  return parts->vocabulary.add(static_cast<int64_t>(id), spelling, bytes && *bytes == spelling);
}

Result<std::vector<BpeMerge>> read_merges(const StoredVocabulary& stored,
                                          const Vocabulary& vocabulary) {
  std::vector<BpeMerge> merges;
  merges.reserve(stored.merges.size());
  for (size_t i = 0; i < stored.merges.size(); ++i) {
    MF_ASSIGN_OR_RETURN(const auto parts, parts_of_merge(stored, i));
    const auto left = bytes_of_spelling(parts.first);
    const auto right = bytes_of_spelling(parts.second);
    const auto left_id = left ? vocabulary.find(*left) : std::nullopt;
    const auto right_id = right ? vocabulary.find(*right) : std::nullopt;
    const auto merged_id = left_id && right_id ? vocabulary.find(*left + *right) : std::nullopt;
    if (!merged_id) {
      return make_error(ErrorCode::kCorruption,
                        "merge {} ({}): a part or the whole is not in the vocabulary", i,
                        json_excerpt(stored.merges[i]));
    }
    merges.push_back({*left_id, *right_id, *merged_id});
  }
  return merges;
}

Result<Tokenizer> make_byte_level(const StoredVocabulary& stored) {
  MF_ASSIGN_OR_RETURN(const NamedSplits splits, find_named_splits(stored.pre));
  MF_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::create(splits.patterns));
  TokenizerParts parts{.pre_tokenizer = std::move(pre_tokenizer),
                       .normalize_nfc = splits.normalize_nfc,
                       .ignore_merges = splits.ignore_merges};
  const auto is_own = [&](size_t id) {
    const TokenKind kind = kind_of(stored, id);
    return kind == TokenKind::kNormal || kind == TokenKind::kByte;
  };
  for (size_t id = 0; id < stored.tokens.size(); ++id) {
    if (is_own(id)) MF_RETURN_IF_ERROR(add_token(stored, id, &parts));
  }
  // Before the added tokens, which have no rank.
  if (splits.merges_by_rank) {
    MF_ASSIGN_OR_RETURN(parts.bpe, Bpe::create_from_ranks(parts.vocabulary));
  }
  for (size_t id = 0; id < stored.tokens.size(); ++id) {
    const bool is_left_out = kind_of(stored, id) == TokenKind::kUnused || stored.tokens[id].empty();
    if (!is_own(id) && !is_left_out) MF_RETURN_IF_ERROR(add_token(stored, id, &parts));
  }
  MF_RETURN_IF_ERROR(check_added_tokens(parts.added_tokens));
  MF_RETURN_IF_ERROR(read_affixes(stored, splits.add_bos, &parts));
  if (!splits.merges_by_rank) {
    MF_ASSIGN_OR_RETURN(const std::vector<BpeMerge> merges, read_merges(stored, parts.vocabulary));
    MF_ASSIGN_OR_RETURN(parts.bpe, Bpe::create(parts.vocabulary, merges));
  }
  return Tokenizer(std::move(parts));
}

Result<Tokenizer> make_by_model(const StoredVocabulary& stored) {
  MF_RETURN_IF_ERROR(check_lists(stored));
  if (stored.model == "gpt2") return make_byte_level(stored);
  if (stored.model == "llama") return make_from_scores(stored);
  if (stored.model == "gemma4") return make_from_character_merges(stored);
  return make_error(ErrorCode::kUnsupported,
                    "tokenizer model {} (tokenizer.ggml.model), expected gpt2, llama or gemma4",
                    json_excerpt(stored.model));
}

}  // namespace

Result<Tokenizer> make_tokenizer(const StoredVocabulary& stored, std::string_view what) {
  Result<Tokenizer> tokenizer = make_by_model(stored);
  if (!tokenizer.ok()) return tokenizer.error().with_context(what);
  return tokenizer;
}

std::vector<TokenId> end_of_text_tokens(const StoredVocabulary& stored) {
  std::vector<TokenId> ids;
  const auto add = [&](const std::optional<int64_t>& id) {
    if (id && *id >= 0 && static_cast<uint64_t>(*id) < stored.tokens.size()) {
      ids.push_back(static_cast<TokenId>(*id));
    }
  };
  add(stored.eos_token_id);
  add(stored.eot_token_id);
  add(stored.eom_token_id);
  for (size_t id = 0; id < std::min(stored.tokens.size(), stored.token_type.size()); ++id) {
    const bool ends = kind_of(stored, id) == TokenKind::kControl &&
                      std::find(std::begin(kEndNames), std::end(kEndNames), stored.tokens[id]) !=
                          std::end(kEndNames);
    if (ends) ids.push_back(static_cast<TokenId>(id));
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace moeflux
