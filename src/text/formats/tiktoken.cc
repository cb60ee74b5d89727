// Ranks and configuration to the parts of a tokenizer. The pattern is not in these files.
#include "text/formats/tiktoken.h"

#include <charconv>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "text/encoding/spec_fields.h"
#include "text/formats/tiktoken_ranks.h"
#include "text/regex/named_splits.h"
#include "text/vocabulary/added_token_spec.h"
#include "text/vocabulary/end_names.h"

namespace moeflux {
namespace {

class TiktokenBuilder {
 public:
  explicit TiktokenBuilder(Vocabulary vocabulary)
      : vocabulary_(std::move(vocabulary)),
        first_id_(vocabulary_.size()),
        added_(static_cast<size_t>(kTiktokenReservedCount)) {}

  Status read_config(std::string_view text) {
    MF_ASSIGN_OR_RETURN(const Json config, parse_json(text, "tokenizer_config.json"));
    const Json& tokens = spec_field(config, "added_tokens_decoder");
    if (!config.is_object() || !(tokens.is_null() || tokens.is_object())) {
      return make_error(ErrorCode::kCorruption,
                        "tokenizer_config.json: expected an object whose added_tokens_decoder, if "
                        "any, is an object");
    }
    for (const auto& [key, spec] : tokens.items()) {
      const Status read = read_token(key, spec);
      if (!read.ok()) return read.error().with_context("tokenizer_config.json");
    }
    return {};
  }

  Result<Tokenizer> build() && {
    // First, while all tokens are those with ranks.
    MF_ASSIGN_OR_RETURN(Bpe bpe, Bpe::create_from_ranks(vocabulary_));
    MF_ASSIGN_OR_RETURN(PreTokenizer pre, PreTokenizer::create(tiktoken_splits()));
    MF_RETURN_IF_ERROR(name_reserved());
    for (const AddedToken& token : added_) {
      MF_RETURN_IF_ERROR(vocabulary_.add(token.id, token.content, false));
    }
    std::vector<TokenId> ends = ends_by_name(added_);
    return Tokenizer({.vocabulary = std::move(vocabulary_),
                      .bpe = std::move(bpe),
                      .pre_tokenizer = std::move(pre),
                      .added_tokens = std::move(added_),
                      .inert_spells_all_added = true,
                      .ignore_merges = true,
                      .end_tokens = std::move(ends)});
  }

 private:
  Status read_token(const std::string& key, const Json& spec) {
    int64_t id = -1;
    const char* end = key.data() + key.size();
    const auto [stop, problem] = std::from_chars(key.data(), end, id);
    const int64_t place = id - first_id_;
    if (problem != std::errc() || stop != end || place < 0 || place >= kTiktokenReservedCount) {
      return make_error(ErrorCode::kCorruption, "added token id {}, expected {} to {}",
                        json_excerpt(key), first_id_, first_id_ + kTiktokenReservedCount - 1);
    }
    MF_ASSIGN_OR_RETURN(const AddedToken token, read_added_token(spec, id));
    if (token.content.empty()) {
      return make_error(ErrorCode::kCorruption, "added token {} has no content", id);
    }
    AddedToken& slot = added_[static_cast<size_t>(place)];
    if (!slot.content.empty()) {  // keys such as "300" and "0300"
      return make_error(ErrorCode::kCorruption, "added token {} is given twice", id);
    }
    slot.id = token.id;
    slot.content = token.content;
    slot.special = token.special;
    return {};
  }

  Status name_reserved() {
    std::unordered_map<std::string_view, TokenId> id_of;
    TokenId id = first_id_;
    for (AddedToken& token : added_) {
      if (token.content.empty()) token = {id, formatted("<|reserved_token_{}|>", id), true};
      const auto [known, is_new] = id_of.emplace(token.content, id);
      if (!is_new) {
        return make_error(ErrorCode::kCorruption, "added tokens {} and {} are both {}",
                          known->second, id, json_excerpt(token.content));
      }
      ++id;
    }
    return {};
  }

  Vocabulary vocabulary_;
  TokenId first_id_;
  std::vector<AddedToken> added_;  // by id from first_id_ on; without content until named
};

}  // namespace

Result<Tokenizer> parse_tiktoken(std::string_view ranks_file,
                                 std::string_view tokenizer_config_json, std::string_view what) {
  Result<Vocabulary> vocabulary = parse_tiktoken_ranks(ranks_file);
  if (!vocabulary.ok()) return vocabulary.error().with_context(what);
  TiktokenBuilder builder(std::move(vocabulary).value());
  const Status read = builder.read_config(tokenizer_config_json);
  if (!read.ok()) return read.error().with_context(what);
  Result<Tokenizer> tokenizer = std::move(builder).build();
  if (!tokenizer.ok()) return tokenizer.error().with_context(what);
  return tokenizer;
}

}  // namespace moeflux
