// Building a Tokenizer from the file's data: one step a section, each refusing by name what is not
// honoured.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/format.h"
#include "text/encoding/byte_alphabet.h"
#include "text/encoding/spec_fields.h"
#include "text/encoding/unicode.h"
#include "text/formats/stored_tokens.h"
#include "text/formats/tokenizer_file.h"
#include "text/spaces/character_rules.h"
#include "text/spaces/space_symbol.h"
#include "text/tokenizer.h"
#include "text/vocabulary/added_token_spec.h"
#include "text/vocabulary/end_names.h"

namespace moeflux {
namespace {

class TokenizerBuilder {
 public:
  explicit TokenizerBuilder(TokenizerFile file) : file_(std::move(file)) {}

  Result<Tokenizer> build() {
    MF_RETURN_IF_ERROR(check_model());
    TokenizerParts parts;
    if (rules_) {
      MF_RETURN_IF_ERROR(make_characters(&parts));
    } else {
      MF_RETURN_IF_ERROR(make_bytes(&parts));
    }
    MF_RETURN_IF_ERROR(read_post_processor(spec_field(file_.rest, "post_processor"), 0));
    parts.vocabulary = std::move(vocabulary_);
    parts.added_tokens = std::move(added_);
    parts.prefix = std::move(prefix_);
    parts.suffix = std::move(suffix_);
    parts.end_tokens = ends_by_name(parts.added_tokens);
    return Tokenizer(std::move(parts));
  }

 private:
  static constexpr int kNestingMax = 8;

  Status check_model() {
    const Json& model = spec_field(file_.rest, "model");
    // Files of GPT-2's time have none.
    const bool is_untyped = spec_field(model, "type").is_null() && !file_.merges.empty();
    if (!is_untyped) {
      MF_ASSIGN_OR_RETURN(const std::string type, spec_type(model, "model"));
      if (type != "BPE") {
        return make_error(ErrorCode::kUnsupported, "model type {}, expected BPE", type);
      }
    }
    MF_ASSIGN_OR_RETURN(ignore_merges_, spec_bool(model, "ignore_merges", false, "model"));
    MF_ASSIGN_OR_RETURN(const bool fallback, spec_bool(model, "byte_fallback", false, "model"));
    for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json& value = spec_field(model, key);
      if (!value.is_null() && value != "") {
        return make_error(ErrorCode::kUnsupported, "model {} {}, expected none", key,
                          json_excerpt(value));
      }
    }
    const Json& dropout = spec_field(model, "dropout");
    if (!dropout.is_null() && dropout != 0) {
      return make_error(ErrorCode::kUnsupported, "model dropout {}", json_excerpt(dropout));
    }
    MF_RETURN_IF_ERROR(read_unknown(model));
    byte_fallback_ = fallback;
    const Json* decoder = &spec_field(file_.rest, "decoder");
    const Json& list = spec_field(*decoder, "decoders");
    if (list.is_array() && list.size() == 1) decoder = &list[0];
    MF_ASSIGN_OR_RETURN(const std::string decoder_type, spec_type(*decoder, "decoder"));
    if (decoder_type == "ByteLevel") return {};
    if (!fallback) {
      return make_error(ErrorCode::kUnsupported,
                        "decoder type {}, expected ByteLevel without byte_fallback", decoder_type);
    }
    if (ignore_merges_) {
      return make_error(ErrorCode::kUnsupported, "model ignore_merges true with byte_fallback");
    }
    MF_ASSIGN_OR_RETURN(rules_, read_character_rules(file_.rest));
    return {};
  }

  // The id is looked up among the model's tokens, and a name that is none of them stands for
  // nothing: GPT-2's files have "".
  Status read_unknown(const Json& model) {
    MF_ASSIGN_OR_RETURN(fuses_unknown_, spec_bool(model, "fuse_unk", false, "model"));
    const Json& name = spec_field(model, "unk_token");
    if (!name.is_string()) return {};
    for (const auto& [spelling, id] : file_.vocab) {
      if (spelling != name.get_ref<const std::string&>()) continue;
      if (id < 0 || id > Vocabulary::kIdMax) return {};  // refused where tokens are added
      unknown_ = static_cast<TokenId>(id);
    }
    return {};
  }

  // With byte_fallback the byte alphabet's own bytes are what falls back: F1 is spelled U+00F1,
  // whose tokens are <0xC3> and <0xB1>.
  MissingBytes missing_bytes() const {
    MissingBytes missing{.unknown = unknown_, .fuses_unknown = fuses_unknown_};
    if (!byte_fallback_) return missing;
    std::array<TokenId, 256> by_byte{};
    by_byte.fill(-1);
    for (const auto& [spelling, id] : file_.vocab) {
      const auto byte = byte_of_spelling(spelling);
      if (byte) by_byte[static_cast<uint8_t>(*byte)] = static_cast<TokenId>(id);
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      std::vector<TokenId> ids;
      for (const char part : spelling_of_bytes(std::string_view(&c, 1))) {
        ids.push_back(by_byte[static_cast<uint8_t>(part)]);
      }
      if (std::ranges::all_of(ids, [](TokenId id) { return id >= 0; })) {
        missing.spelled[byte] = std::move(ids);
      }
    }
    return missing;
  }

  Status make_bytes(TokenizerParts* parts) {
    MF_RETURN_IF_ERROR(read_normalizer(spec_field(file_.rest, "normalizer"), 0));
    MF_RETURN_IF_ERROR(read_added_tokens());
    MF_RETURN_IF_ERROR(fill_vocabulary());
    MF_ASSIGN_OR_RETURN(const std::vector<BpeMerge> merges, resolve_merges());
    MF_ASSIGN_OR_RETURN(parts->bpe, Bpe::create(vocabulary_, merges, missing_bytes()));
    MF_ASSIGN_OR_RETURN(parts->pre_tokenizer,
                        PreTokenizer::parse(spec_field(file_.rest, "pre_tokenizer")));
    parts->normalize_nfc = nfc_;
    parts->ignore_merges = ignore_merges_;
    return {};
  }

  Status make_characters(TokenizerParts* parts) {
    MF_RETURN_IF_ERROR(read_added_tokens());
    std::vector<CharacterBpe::Symbol> symbols;
    MF_ASSIGN_OR_RETURN(const CharacterFallback fallback, fill_characters(&symbols));
    const std::vector<std::pair<std::string_view, std::string_view>> merges(file_.merges.begin(),
                                                                            file_.merges.end());
    MF_ASSIGN_OR_RETURN(parts->character_bpe, CharacterBpe::create_from_merges(
                                                  symbols, fallback, vocabulary_.size(), merges));
    if (rules_->replaces_spaces) {
      MF_ASSIGN_OR_RETURN(parts->sentencepiece, SentencePieceNormalizer::create(
                                                    {.add_dummy_prefix = rules_->prepends_space,
                                                     .remove_extra_whitespaces = false}));
    }
    parts->metaspace = rules_->metaspace;
    parts->leading_space = {.first = rules_->strips_first_space, .of_any_token = true};
    constexpr std::string_view kEachSpace[] = {R"(\x{2581}[^\x{2581}]*|[^\x{2581}]+)"};
    const bool splits = rules_->metaspace && rules_->metaspace->splits();
    MF_ASSIGN_OR_RETURN(parts->pre_tokenizer,
                        splits ? PreTokenizer::create(kEachSpace) : cuts_before_spaces(symbols));
    return {};
  }

  Status read_normalizer(const Json& spec, int depth) {
    if (spec.is_null()) return {};
    MF_ASSIGN_OR_RETURN(const std::string type, spec_type(spec, "normalizer"));
    if (type == "NFC") {
      nfc_ = true;
      return {};
    }
    if (type != "Sequence" || depth > kNestingMax) {
      return make_error(ErrorCode::kUnsupported, "normalizer type {}, expected NFC", type);
    }
    MF_ASSIGN_OR_RETURN(const Json* list, spec_list(spec, "normalizers", "normalizer"));
    for (const Json& item : *list) MF_RETURN_IF_ERROR(read_normalizer(item, depth + 1));
    return {};
  }

  Status read_added_tokens() {
    const Json& list = spec_field(file_.rest, "added_tokens");
    if (list.is_null()) return {};
    if (!list.is_array()) return make_error(ErrorCode::kCorruption, "added_tokens is not an array");
    for (const Json& spec : list) {
      MF_ASSIGN_OR_RETURN(const int64_t id, json_int(spec_field(spec, "id"), "added token id"));
      MF_ASSIGN_OR_RETURN(AddedToken token, read_added_token(spec, id));
      if (token.content.empty()) continue;
      const auto [known, is_new] = added_by_content_.emplace(token.content, added_.size());
      if (is_new) {
        std::string text = token.content;
        if (token.normalized && nfc_) {
          MF_ASSIGN_OR_RETURN(text, normalize_nfc(token.content));
        }
        if (token.normalized && rules_) text = rules_->normalize(token.content);
        if (token.normalized) token.needle = text;
        added_text_.push_back(std::move(text));
        added_.push_back(std::move(token));
      } else if (added_[known->second].id != token.id) {
        return make_error(ErrorCode::kCorruption, "added token \"{}\" has ids {} and {}",
                          token.content, added_[known->second].id, token.id);
      }
    }
    return {};
  }

  // The place of the added token that a token of the model is, if any.
  Result<std::optional<size_t>> added_of(const std::string& spelling, int64_t id) const {
    const auto added = added_by_content_.find(spelling);
    if (added == added_by_content_.end()) return std::optional<size_t>();
    if (added_[added->second].id == id) return std::optional(added->second);
    return make_error(ErrorCode::kCorruption,
                      "added token \"{}\" has id {}, but {} in the vocabulary", spelling,
                      added_[added->second].id, id);
  }

  // All tokens of the model may merge, those of bytes too.
  Result<CharacterFallback> fill_characters(std::vector<CharacterBpe::Symbol>* symbols) {
    CharacterFallback fallback{
        .by_byte = {}, .unknown = unknown_, .has_bytes = true, .fuses_unknown = fuses_unknown_};
    fallback.by_byte.fill(-1);
    std::vector<bool> in_model(added_.size());
    const auto show = [&](int64_t id, std::string_view text, bool findable) {
      const auto byte = byte_of_spelling(text);
      if (byte) return vocabulary_.add(id, std::string_view(&*byte, 1), false);
      const std::string shown = with_spaces(text);
      return vocabulary_.add(id, shown, findable && !vocabulary_.find(shown));
    };
    for (const auto& [spelling, id] : file_.vocab) {
      MF_ASSIGN_OR_RETURN(const auto added, added_of(spelling, id));
      if (added) in_model[*added] = true;
      MF_RETURN_IF_ERROR(show(id, added ? added_text_[*added] : spelling, !added));
      const auto token = static_cast<TokenId>(id);  // in range, or it could not be shown
      symbols->push_back({.text = spelling, .id = token});
      const auto byte = byte_of_spelling(spelling);
      if (byte && spelling == byte_spelling(static_cast<uint8_t>(*byte))) {
        fallback.by_byte[static_cast<uint8_t>(*byte)] = token;
      }
    }
    for (size_t i = 0; i < added_.size(); ++i) {
      if (!in_model[i]) MF_RETURN_IF_ERROR(show(added_[i].id, added_text_[i], false));
    }
    return fallback;
  }

  // Bytes fall back to this spelling only; decoding reads small letters, too.
  static std::string byte_spelling(size_t byte) { return formatted("<0x{:02X}>", byte); }

  Status fill_vocabulary() {
    std::vector<bool> in_model(added_.size());
    for (const auto& [spelling, id] : file_.vocab) {
      const auto bytes = bytes_of_spelling(spelling);
      MF_ASSIGN_OR_RETURN(const auto added, added_of(spelling, id));
      if (!added) {
        MF_RETURN_IF_ERROR(vocabulary_.add(id, bytes ? *bytes : spelling, bytes.has_value()));
        continue;
      }
      in_model[*added] = true;
      MF_RETURN_IF_ERROR(vocabulary_.add(id, added_text_[*added], bytes && *bytes == spelling));
      // Shown as its content, and what bytes and merges make all the same.
      if (bytes) vocabulary_.add_name(static_cast<TokenId>(id), *bytes);
    }
    for (size_t i = 0; i < added_.size(); ++i) {
      if (in_model[i]) continue;
      MF_RETURN_IF_ERROR(vocabulary_.add(added_[i].id, added_text_[i], false));
    }
    return {};
  }

  Result<std::vector<BpeMerge>> resolve_merges() const {
    std::vector<BpeMerge> merges;
    merges.reserve(file_.merges.size());
    for (size_t i = 0; i < file_.merges.size(); ++i) {
      const auto& [left_spelling, right_spelling] = file_.merges[i];
      const auto left = bytes_of_spelling(left_spelling);
      const auto right = bytes_of_spelling(right_spelling);
      const auto id_of = [&](const std::string& bytes) { return vocabulary_.find(bytes); };
      const auto left_id = left ? id_of(*left) : std::nullopt;
      const auto right_id = right ? id_of(*right) : std::nullopt;
      const auto merged_id = left_id && right_id ? id_of(*left + *right) : std::nullopt;
      if (!merged_id) {
        return make_error(ErrorCode::kCorruption,
                          "merge {} (\"{}\" \"{}\"): a part or the whole is not in the vocabulary",
                          i, left_spelling, right_spelling);
      }
      merges.push_back({*left_id, *right_id, *merged_id});
    }
    return merges;
  }

  Status read_post_processor(const Json& spec, int depth) {
    if (spec.is_null()) return {};
    MF_ASSIGN_OR_RETURN(const std::string type, spec_type(spec, "post_processor"));
    if (type == "ByteLevel") return {};  // trims offsets, which nobody asks for here
    if (type == "TemplateProcessing") return read_template(spec);
    if (type != "Sequence" || depth > kNestingMax) {
      return make_error(ErrorCode::kUnsupported,
                        "post_processor type {}, expected ByteLevel or TemplateProcessing", type);
    }
    MF_ASSIGN_OR_RETURN(const Json* list, spec_list(spec, "processors", "post_processor"));
    for (const Json& item : *list) MF_RETURN_IF_ERROR(read_post_processor(item, depth + 1));
    return {};
  }

  Status read_template(const Json& spec) {
    MF_ASSIGN_OR_RETURN(const Json* single, spec_list(spec, "single", "post_processor"));
    if (has_template_) return make_error(ErrorCode::kUnsupported, "post_processor: two templates");
    has_template_ = true;
    bool has_text = false;
    for (const Json& piece : *single) {
      const Json& sequence = spec_field(piece, "Sequence");
      const Json& special = spec_field(piece, "SpecialToken");
      if (special.is_object()) {
        MF_RETURN_IF_ERROR(read_template_token(spec, special, has_text ? &suffix_ : &prefix_));
      } else if (!has_text && spec_field(sequence, "id") == "A") {
        has_text = true;
      } else {
        return make_error(ErrorCode::kUnsupported, "post_processor template piece {}",
                          json_excerpt(piece));
      }
    }
    if (!has_text) return make_error(ErrorCode::kUnsupported, "post_processor without its text");
    return {};
  }

  Status read_template_token(const Json& spec, const Json& special, std::vector<TokenId>* out) {
    const Json& name = spec_field(special, "id");
    const Json& tokens = spec_field(spec, "special_tokens");
    const Json& token =
        name.is_string() ? spec_field(tokens, name.get_ref<const std::string&>()) : name;
    Result<const Json*> ids = spec_list(token, "ids", "post_processor token");
    if (!ids.ok()) return ids.error();
    for (const Json& value : **ids) {
      MF_ASSIGN_OR_RETURN(const int64_t id, json_int(value, "post_processor token id"));
      if (id < 0 || id >= vocabulary_.size() || !vocabulary_.contains(static_cast<TokenId>(id))) {
        return make_error(ErrorCode::kCorruption,
                          "post_processor token {} is not in the vocabulary", id);
      }
      out->push_back(static_cast<TokenId>(id));
    }
    return {};
  }

  TokenizerFile file_;
  std::vector<AddedToken> added_;
  std::vector<std::string> added_text_;  // each in normalised text, where that is its place
  std::unordered_map<std::string, size_t> added_by_content_;
  Vocabulary vocabulary_;
  std::vector<TokenId> prefix_;
  std::vector<TokenId> suffix_;
  bool has_template_ = false;
  std::optional<CharacterRules> rules_;  // where characters are the first symbols
  bool nfc_ = false;
  bool ignore_merges_ = false;
  bool byte_fallback_ = false;
  bool fuses_unknown_ = false;
  TokenId unknown_ = -1;
};

}  // namespace

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json, std::string_view what) {
  MF_ASSIGN_OR_RETURN(TokenizerFile file, parse_tokenizer_file(tokenizer_json, what));
  Result<Tokenizer> tokenizer = TokenizerBuilder(std::move(file)).build();
  if (!tokenizer.ok()) return tokenizer.error().with_context(what);
  return tokenizer;
}

}  // namespace moeflux
