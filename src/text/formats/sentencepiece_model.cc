// The message ModelProto to a stored vocabulary. Field numbers are those of
// sentencepiece_model.proto, and so are the defaults.
#include "text/formats/sentencepiece_model.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <string>

#include "base/format.h"
#include "base/json.h"
#include "text/encoding/protobuf.h"
#include "text/encoding/spec_fields.h"
#include "text/formats/stored_vocabulary.h"
#include "text/vocabulary/added_token_spec.h"

namespace moeflux {
namespace {

// Added tokens follow the model's own; a file's word alone shall not make a table of millions.
constexpr size_t kAddedMax = 65536;
constexpr std::string_view kUnknownSurface = " \xE2\x81\x87 ";

// Calls visit(field) for each field of a message.
template <typename Visit>
Status for_each_field(std::string_view message, Visit visit) {
  ProtobufReader reader(message);
  while (!reader.at_end()) {
    MF_ASSIGN_OR_RETURN(const ProtobufField field, reader.next());
    MF_RETURN_IF_ERROR(visit(field));
  }
  return {};
}

class SentencePieceReader {
 public:
  Status read_model(std::string_view model) {
    stored_ = {.model = "llama",
               .unknown_token_id = 0,
               .add_space_prefix = true,
               .remove_extra_whitespaces = true,
               .keeps_kinds = true,
               .unknown_surface = std::string(kUnknownSurface)};
    stored_.bos_token_id = 1;
    stored_.eos_token_id = 2;
    const Status read = for_each_field(model, [&](const ProtobufField& field) -> Status {
      if (field.id == 1) return read_piece(field.bytes);
      if (field.id == 2) return read_trainer(field.bytes);
      if (field.id == 3) return read_normalizer(field.bytes);
      if (field.id == 5) return check_denormalizer(field.bytes);
      return {};
    });
    MF_RETURN_IF_ERROR(read);
    MF_RETURN_IF_ERROR(check_type());
    const auto byte = static_cast<int32_t>(TokenKind::kByte);
    const auto& kinds = stored_.token_type;
    const auto bytes_count = std::count(kinds.begin(), kinds.end(), byte);
    const bool has_bytes = bytes_count > 0;
    if (has_bytes && bytes_count != 256) {
      return make_error(ErrorCode::kCorruption, "{} byte tokens, expected 256 or none",
                        bytes_count);
    }
    if (has_bytes == byte_fallback_) return {};
    return make_error(ErrorCode::kCorruption, "byte_fallback is {}, but {} byte tokens",
                      byte_fallback_, has_bytes ? "there are" : "there are no");
  }

  Status read_config(std::string_view text) {
    constexpr std::string_view kWhat = "tokenizer_config.json";
    MF_ASSIGN_OR_RETURN(const Json config, parse_json(text, kWhat));
    const Json& tokens = spec_field(config, "added_tokens_decoder");
    if (!config.is_object() || !(tokens.is_null() || tokens.is_object())) {
      return make_error(ErrorCode::kCorruption,
                        "{}: expected an object whose added_tokens_decoder, if any, is an object",
                        kWhat);
    }
    MF_ASSIGN_OR_RETURN(stored_.add_bos_token, read_flag(config, "add_bos_token"));
    MF_ASSIGN_OR_RETURN(stored_.add_eos_token, read_flag(config, "add_eos_token"));
    MF_ASSIGN_OR_RETURN(const auto prefix, read_flag(config, "add_prefix_space"));
    if (prefix) stored_.add_space_prefix = *prefix;
    const size_t own_count = stored_.tokens.size();
    for (const auto& [key, spec] : tokens.items()) {
      const Status added = read_added(key, spec, own_count);
      if (!added.ok()) return added.error().with_context(kWhat);
    }
    return {};
  }

  const StoredVocabulary& stored() const { return stored_; }

 private:
  Status read_piece(std::string_view message) {
    std::string text;
    float score = 0;
    auto type = static_cast<int32_t>(TokenKind::kNormal);
    MF_RETURN_IF_ERROR(for_each_field(message, [&](const ProtobufField& field) -> Status {
      if (field.id == 1) text = field.bytes;
      if (field.id == 2) score = std::bit_cast<float>(static_cast<uint32_t>(field.number));
      if (field.id == 3) type = static_cast<int32_t>(field.number);
      return {};
    }));
    if (text.empty()) {
      return make_error(ErrorCode::kCorruption, "token {} is empty", stored_.tokens.size());
    }
    stored_.tokens.push_back(std::move(text));
    stored_.scores.push_back(score);
    stored_.token_type.push_back(type);
    return {};
  }

  Status read_trainer(std::string_view message) {
    const auto read_id = [](uint64_t number, std::optional<int64_t>* id) {
      const auto value = static_cast<int32_t>(number);
      *id = value < 0 ? std::nullopt : std::optional<int64_t>(value);
    };
    return for_each_field(message, [&](const ProtobufField& field) -> Status {
      if (field.id == 3) model_type_ = field.number;
      if (field.id == 24) stored_.whitespace_as_suffix = field.number != 0;
      if (field.id == 35) byte_fallback_ = field.number != 0;
      if (field.id == 40) read_id(field.number, &stored_.unknown_token_id);
      if (field.id == 41) read_id(field.number, &stored_.bos_token_id);
      if (field.id == 42) read_id(field.number, &stored_.eos_token_id);
      if (field.id == 44) stored_.unknown_surface = std::string(field.bytes);
      return {};
    });
  }

  Status read_normalizer(std::string_view message) {
    return for_each_field(message, [&](const ProtobufField& field) -> Status {
      if (field.id == 2) stored_.precompiled_charsmap = std::string(field.bytes);
      if (field.id == 3) stored_.add_space_prefix = field.number != 0;
      if (field.id == 4) stored_.remove_extra_whitespaces = field.number != 0;
      if (field.id == 5) stored_.escape_whitespaces = field.number != 0;
      return {};
    });
  }

  static Status check_denormalizer(std::string_view message) {
    return for_each_field(message, [&](const ProtobufField& field) -> Status {
      if (field.id != 2 || field.bytes.empty()) return {};
      return make_error(ErrorCode::kUnsupported, "a denormalizer_spec with replacements");
    });
  }

  Status check_type() const {
    constexpr std::string_view kTypes[] = {"UNIGRAM", "BPE", "WORD", "CHAR"};
    if (model_type_ == 2) return {};
    if (model_type_ >= 1 && model_type_ <= 4) {
      return make_error(ErrorCode::kUnsupported, "model_type {}, expected BPE",
                        kTypes[model_type_ - 1]);
    }
    return make_error(ErrorCode::kCorruption, "model_type {}, expected 1 to 4", model_type_);
  }

  static Result<std::optional<bool>> read_flag(const Json& config, std::string_view key) {
    if (spec_field(config, key).is_null()) return std::optional<bool>();
    MF_ASSIGN_OR_RETURN(const bool value, spec_bool(config, key, false, "tokenizer_config.json"));
    return std::optional(value);
  }

  // A token of the model may get another content there, where the model kept a place for it.
  Status read_added(const std::string& key, const Json& spec, size_t own_count) {
    int64_t id = -1;
    const char* end = key.data() + key.size();
    const auto [stop, problem] = std::from_chars(key.data(), end, id);
    const auto id_max = static_cast<int64_t>(own_count + kAddedMax);
    if (problem != std::errc() || stop != end || id < 0 || id > id_max) {
      return make_error(ErrorCode::kCorruption, "added token id {}, expected 0 to {}",
                        json_excerpt(key), id_max);
    }
    MF_ASSIGN_OR_RETURN(const AddedToken token, read_added_token(spec, id));
    const auto at = static_cast<size_t>(id);
    if (at >= stored_.tokens.size()) {
      stored_.tokens.resize(at + 1);
      stored_.scores.resize(at + 1);
      stored_.token_type.resize(at + 1, static_cast<int32_t>(TokenKind::kUnused));
    }
    int32_t& kind = stored_.token_type[at];
    const bool is_changed = stored_.tokens[at] != token.content;
    const bool is_plain = kind == static_cast<int32_t>(TokenKind::kNormal) ||
                          kind == static_cast<int32_t>(TokenKind::kUserDefined) ||
                          kind == static_cast<int32_t>(TokenKind::kUnused);
    if (is_changed || is_plain) {
      kind = static_cast<int32_t>(token.special ? TokenKind::kControl : TokenKind::kUserDefined);
    }
    stored_.tokens[at] = token.content;
    return {};
  }

  StoredVocabulary stored_;
  uint64_t model_type_ = 1;
  bool byte_fallback_ = false;
};

}  // namespace

Result<Tokenizer> parse_sentencepiece(std::string_view model,
                                      std::string_view tokenizer_config_json,
                                      std::string_view what) {
  SentencePieceReader reader;
  Status read = reader.read_model(model);
  if (read.ok() && !tokenizer_config_json.empty()) read = reader.read_config(tokenizer_config_json);
  if (!read.ok()) return read.error().with_context(what);
  return make_tokenizer(reader.stored(), what);
}

}  // namespace moeflux
