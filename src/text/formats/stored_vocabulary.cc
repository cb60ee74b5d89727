// Checks what every model shares, then one builder a model.
#include "text/formats/stored_vocabulary.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "base/format.h"
#include "base/json.h"
#include "text/encoding/byte_alphabet.h"
#include "text/formats/stored_tokens.h"
#include "text/regex/named_splits.h"
#include "text/vocabulary/end_names.h"

namespace moeflux {
namespace {

Status check_id(std::string_view key, const std::optional<int64_t>& id, size_t count) {
  if (!id || (*id >= 0 && static_cast<uint64_t>(*id) < count)) return {};
  return make_error(ErrorCode::kCorruption, "tokenizer.ggml.{} is {}, but there are {} tokens", key,
                    *id, count);
}

Status check_lists(const StoredVocabulary& stored) {
  const size_t count = stored.tokens.size();
  if (count == 0) return make_error(ErrorCode::kCorruption, "a vocabulary without tokens");
  const auto check_length = [&](std::string_view key, size_t length) -> Status {
    if (length == 0 || length == count) return {};
    return make_error(ErrorCode::kCorruption, "tokenizer.ggml.{} has {} entries for {} tokens", key,
                      length, count);
  };
  MF_RETURN_IF_ERROR(check_length("scores", stored.scores.size()));
  MF_RETURN_IF_ERROR(check_length("token_type", stored.token_type.size()));
  for (size_t id = 0; id < stored.token_type.size(); ++id) {
    const int32_t type = stored.token_type[id];
    if (type < 0 || type > 6) {
      return make_error(ErrorCode::kCorruption,
                        "token {} has type {} (tokenizer.ggml.token_type), expected 0 to 6", id,
                        type);
    }
  }
  MF_RETURN_IF_ERROR(check_id("bos_token_id", stored.bos_token_id, count));
  MF_RETURN_IF_ERROR(check_id("eos_token_id", stored.eos_token_id, count));
  MF_RETURN_IF_ERROR(check_id("eot_token_id", stored.eot_token_id, count));
  MF_RETURN_IF_ERROR(check_id("eom_token_id", stored.eom_token_id, count));
  MF_RETURN_IF_ERROR(check_id("unknown_token_id", stored.unknown_token_id, count));
  return check_id("padding_token_id", stored.padding_token_id, count);
}

// The names of ends that merges make of other tokens.
std::unordered_set<std::string> merged_end_names(const StoredVocabulary& stored) {
  std::unordered_set<std::string> names;
  for (const std::string& merge : stored.merges) {
    if (!merge.ends_with('>') && !merge.ends_with(']') && !merge.ends_with('[')) continue;
    std::string whole = merge;
    std::erase(whole, ' ');
    if (is_end_name(whole)) names.insert(std::move(whole));
  }
  return names;
}

// A normal token that merges make is a piece of ordinary text, as </s> of Qwen's vocabulary.
std::vector<TokenId> named_ends(const StoredVocabulary& stored) {
  std::vector<NamedToken> named;
  const bool has_kinds = stored.token_type.size() == stored.tokens.size();
  const std::unordered_set<std::string> merged = merged_end_names(stored);
  for (size_t id = 0; id < stored.tokens.size(); ++id) {
    const std::string& name = stored.tokens[id];
    if (!is_end_name(name)) continue;
    const int32_t kind = has_kinds ? stored.token_type[id] : 0;
    const bool is_normal = kind == 0 || kind == static_cast<int32_t>(TokenKind::kNormal);
    if (is_normal && merged.contains(name)) continue;
    named.push_back(
        {name, static_cast<TokenId>(id), kind == static_cast<int32_t>(TokenKind::kControl)});
  }
  return ends_by_name(std::span<const NamedToken>(named));
}

// Gives each token the kind with which it works.
void settle_kinds(StoredVocabulary* stored) {
  auto& kinds = stored->token_type;
  constexpr auto kNormal = static_cast<int32_t>(TokenKind::kNormal);
  constexpr auto kControl = static_cast<int32_t>(TokenKind::kControl);
  if (kinds.empty()) {
    kinds.assign(stored->tokens.size(), kNormal);
    for (const auto& id : {stored->bos_token_id, stored->eos_token_id, stored->eot_token_id,
                           stored->eom_token_id, stored->padding_token_id}) {
      if (id) kinds[static_cast<size_t>(*id)] = kControl;
    }
    const auto& unknown = stored->unknown_token_id;
    if (unknown && kinds[static_cast<size_t>(*unknown)] == kNormal) {
      kinds[static_cast<size_t>(*unknown)] = static_cast<int32_t>(TokenKind::kUnknown);
    }
  }
  std::ranges::replace(kinds, 0, kNormal);
  if (stored->keeps_kinds) return;
  for (const TokenId id : named_ends(*stored)) {
    int32_t& kind = kinds[static_cast<size_t>(id)];
    if (kind == kNormal || kind == static_cast<int32_t>(TokenKind::kUserDefined)) kind = kControl;
  }
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
  // Findable when it may be a byte or a merge's result as well, as in tokenizer.json.
  MF_RETURN_IF_ERROR(
      parts->vocabulary.add(static_cast<int64_t>(id), spelling, bytes && *bytes == spelling));
  if (bytes) parts->vocabulary.add_name(static_cast<TokenId>(id), *bytes);
  return {};
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

std::string guess_warning(std::string_view pre) {
  return formatted(
      "tokenizer.ggml.pre is {}: texts are cut as llama.cpp does, which may not be the model's own "
      "way and then makes its answers worse; convert the model again",
      pre.empty() ? "absent" : json_excerpt(pre));
}

Result<Tokenizer> make_byte_level(const StoredVocabulary& stored, const NamedSplits& splits) {
  MF_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer,
                      PreTokenizer::create(splits.patterns, splits.spelled_patterns));
  TokenizerParts parts{.pre_tokenizer = std::move(pre_tokenizer),
                       .normalize_nfc = splits.normalize_nfc,
                       .ignore_merges = splits.ignore_merges};
  const auto is_own = [&](size_t id) {
    const TokenKind kind = kind_of(stored, id);
    return kind == TokenKind::kNormal || kind == TokenKind::kByte;
  };
  for (size_t id = 0; id < stored.tokens.size(); ++id) {
    const bool is_ours = is_own(id) && !stored.tokens[id].empty();
    if (is_ours) MF_RETURN_IF_ERROR(add_token(stored, id, &parts));
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
  parts.end_tokens = end_of_text_tokens(stored);
  if (splits.is_guess) parts.warning = guess_warning(stored.pre);
  if (!splits.merges_by_rank) {
    MF_ASSIGN_OR_RETURN(const std::vector<BpeMerge> merges, read_merges(stored, parts.vocabulary));
    MF_ASSIGN_OR_RETURN(parts.bpe, Bpe::create(parts.vocabulary, merges));
  }
  return Tokenizer(std::move(parts));
}

// Ollama's converter writes "default" for what llama.cpp's calls gpt-4o.
std::string_view pre_of(const StoredVocabulary& stored) {
  const bool is_stated = !stored.pre.empty() && stored.pre != "default";
  const bool is_known = stored.architecture == "gptoss" || stored.architecture == "gpt-oss";
  return !is_stated && is_known ? "gpt-4o" : std::string_view(stored.pre);
}

Result<Tokenizer> make_by_model(const StoredVocabulary& stored) {
  NamedSplits splits;
  if (stored.model == "gpt2") {
    MF_ASSIGN_OR_RETURN(splits, find_named_splits(pre_of(stored)));
  }
  const bool merges = stored.model == "gemma4" || stored.model == "gpt2";
  if (merges && !splits.merges_by_rank && stored.lacks_merges) {
    return make_error(
        ErrorCode::kCorruption,
        "key tokenizer.ggml.merges is absent, which a tokenizer.ggml.model of {} needs",
        stored.model);
  }
  if (stored.model == "gpt2") {
    if (!splits.spells_spaces) return make_byte_level(stored, splits);
    return make_from_character_merges(stored, stored.pre != "sarvam-moe");
  }
  if (stored.model == "llama") return make_from_scores(stored);
  if (stored.model == "gemma4") return make_from_character_merges(stored, true);
  return make_error(ErrorCode::kUnsupported,
                    "tokenizer model {} (tokenizer.ggml.model), expected gpt2, llama or gemma4",
                    json_excerpt(stored.model));
}

}  // namespace

Result<Tokenizer> make_tokenizer(StoredVocabulary stored, std::string_view what) {
  const Status checked = check_lists(stored);
  if (!checked.ok()) return checked.error().with_context(what);
  settle_kinds(&stored);
  Result<Tokenizer> tokenizer = make_by_model(stored);
  if (!tokenizer.ok()) return tokenizer.error().with_context(what);
  return tokenizer;
}

std::vector<TokenId> end_of_text_tokens(const StoredVocabulary& stored) {
  std::vector<TokenId> ids = named_ends(stored);
  const auto add = [&](const std::optional<int64_t>& id) {
    if (id && *id >= 0 && static_cast<uint64_t>(*id) < stored.tokens.size()) {
      ids.push_back(static_cast<TokenId>(*id));
    }
  };
  add(stored.eos_token_id);
  add(stored.eot_token_id);
  add(stored.eom_token_id);
  for (const int64_t id : stored.other_ends) add(id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace moeflux
