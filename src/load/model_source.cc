#include "load/model_source.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "checkpoint/foreign_file.h"
#include "io/file.h"
#include "load/gguf_source.h"
#include "load/model_loader.h"
#include "load/model_place.h"
#include "load/python_json.h"

namespace moeflux {
namespace {

constexpr uint64_t kConfigBytesMax =
    64 * kMiB;  // the largest public ones, with per-module entries, reach 1 MiB
constexpr uint64_t kTokenizerBytesMax = kGiB;
constexpr uint64_t kRanksBytesMax = 64 * kMiB;
/// A layer that was trained later, for a model that was published without one.
constexpr std::string_view kDraftLayerName = "mtp.safetensors";

Status check_is_fetched(const std::string& path, std::string_view text) {
  if (!is_lfs_pointer(text)) return {};
  return make_error(ErrorCode::kCorruption, "{} is {}", path, kLfsPointerText);
}

class FolderSource : public ModelSource {
 public:
  FolderSource(std::string named, std::string path)
      : named_(std::move(named)), path_(std::move(path)) {}

  const std::string& path() const override { return named_; }
  const std::string& place() const override { return path_; }

  // With Model Optimizer's own file where config.json has no section of it.
  Result<std::string> config() const override {
    const std::string file = path_ + "/config.json";
    if (const std::string kind = path_exists(file) ? "" : describe_folder(path_); !kind.empty()) {
      return make_error(ErrorCode::kNotFound, "{}: {}", path_, kind);
    }
    MF_ASSIGN_OR_RETURN(std::string text, read_text_file(file, kConfigBytesMax));
    MF_RETURN_IF_ERROR(check_is_fetched(file, text));
    text = with_named_floats(text);
    MF_ASSIGN_OR_RETURN(const std::optional<std::string> beside,
                        read_optional("hf_quant_config.json"));
    if (!beside) return text;
    MF_ASSIGN_OR_RETURN(Json config, parse_json(text, "config.json"));
    if (!config.is_object() || config.contains("quantization") ||
        config.contains("quantization_config")) {
      return text;
    }
    MF_ASSIGN_OR_RETURN(Json section, parse_json(*beside, "hf_quant_config.json"));
    if (!section.is_object()) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{}/hf_quant_config.json is {}, expected an object", path_,
                        json_excerpt(section));
    }
    section["quant_method"] = "modelopt";
    config["quantization_config"] = std::move(section);
    return config.dump(4) + "\n";
  }

  Result<TensorIndex> tensors(const ModelUse& use) const override {
    return TensorIndex::open(path_, use.draft_layer ? kDraftLayerName : std::string_view());
  }

  Result<bool> holds_tensors() const override {
    MF_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_files(path_));
    return std::any_of(names.begin(), names.end(), [](const std::string& name) {
      return (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) &&
             !is_beside_model(name);
    });
  }

  Result<TokenizerText> tokenizer() const override {
    using Kind = TokenizerText::Kind;
    const std::string json = path_ + "/tokenizer.json";
    if (path_exists(json)) return read_tokenizer(Kind::kJson, json, kTokenizerBytesMax);
    const std::string ranks = path_ + "/tiktoken.model";
    MF_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSource> keys, open_keys());
    if (keys != nullptr) return keys->tokenizer();
    const std::string pieces = path_ + "/tokenizer.model";
    const std::string config = path_ + "/tokenizer_config.json";
    const bool has_ranks = path_exists(ranks);
    if (!has_ranks && !path_exists(pieces)) {
      // An adapter or a pipeline has no config.json either, which tells more.
      if (const auto model = this->config(); !model.ok()) return model.error();
      return make_error(ErrorCode::kNotFound,
                        "{}: the model folder has no tokenizer.json, tiktoken.model or "
                        "tokenizer.model",
                        path_);
    }
    MF_ASSIGN_OR_RETURN(TokenizerText tokenizer,
                        has_ranks ? read_tokenizer(Kind::kTiktoken, ranks, kRanksBytesMax)
                                  : read_tokenizer(Kind::kSentencePiece, pieces, kRanksBytesMax));
    if (has_ranks || path_exists(config)) {
      MF_ASSIGN_OR_RETURN(tokenizer.config, read_text_file(config, kConfigBytesMax));
    }
    return tokenizer;
  }

  Result<std::optional<std::string>> generation_config() const override {
    MF_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSource> keys, open_keys());
    if (keys != nullptr) return keys->generation_config();
    return read_optional("generation_config.json");
  }

  Result<StoredTemplates> chat_templates() const override {
    MF_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSource> keys, open_keys());
    if (keys != nullptr) return keys->chat_templates();
    StoredTemplates stored;
    MF_ASSIGN_OR_RETURN(stored.text, read_optional("chat_template.jinja"));
    if (stored.text) stored.places[""] = path_ + "/chat_template.jinja";
    MF_RETURN_IF_ERROR(add_additional_templates(stored));
    for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
      if (stored.text || !stored.named.empty()) break;
      MF_RETURN_IF_ERROR(add_templates_of(name, stored));
    }
    return stored;
  }

  Result<std::vector<std::string>> special_token_maps() const override {
    MF_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSource> keys, open_keys());
    if (keys != nullptr) return keys->special_token_maps();
    std::vector<std::string> maps;
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
      MF_ASSIGN_OR_RETURN(const std::optional<std::string> text, read_optional(name));
      if (text) maps.push_back(*text);
    }
    return maps;
  }

  Result<std::optional<std::string>> keys_without_tensors() const override {
    return read_optional(kGgufKeysName);
  }

  Result<std::optional<std::string>> beside(std::string_view name) const override {
    return read_optional(name);
  }

  Result<StoredPooling> pooling() const override {
    MF_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSource> keys, open_keys());
    return keys == nullptr ? Result<StoredPooling>(StoredPooling{}) : keys->pooling();
  }

 private:
  Status add_additional_templates(StoredTemplates& stored) const {
    const std::string folder = path_ + "/additional_chat_templates";
    if (!path_exists(folder)) return {};
    MF_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_files(folder));
    constexpr std::string_view kEnding = ".jinja";
    for (const std::string& name : names) {
      if (!name.ends_with(kEnding)) continue;
      const std::string known = name.substr(0, name.size() - kEnding.size());
      stored.places[known] = formatted("{}/{}", folder, name);
      MF_ASSIGN_OR_RETURN(stored.named[known],
                          read_text_file(stored.places[known], kConfigBytesMax));
    }
    return {};
  }

  /// "chat_template" of a JSON file: a text, or a list of {"name", "template"}.
  Status add_templates_of(std::string_view name, StoredTemplates& stored) const {
    MF_ASSIGN_OR_RETURN(const std::optional<std::string> text, read_optional(name));
    if (!text) return {};
    const std::string path = formatted("{}/{}", path_, name);
    MF_ASSIGN_OR_RETURN(const Json config, parse_json(*text, path));
    if (!config.is_object() || !config.contains("chat_template")) return {};
    const Json& found = config["chat_template"];
    if (found.is_string()) {
      stored.text = found.get<std::string>();
      stored.places[""] = formatted("{}: chat_template", path);
    }
    if (found.is_string() || found.is_null()) return {};
    const auto is_text = [](const Json& entry, const char* key) {
      return entry.is_object() && entry.contains(key) && entry[key].is_string();
    };
    for (const Json& entry : found) {
      if (!found.is_array() || !is_text(entry, "name") || !is_text(entry, "template")) {
        return make_error(ErrorCode::kCorruption,
                          "{}: chat_template has {}, expected a text or a list of names and texts",
                          path, json_excerpt(entry));
      }
      const std::string known = entry["name"].get<std::string>();
      stored.places[known] = formatted("{}: chat_template {}", path, known);
      stored.named[known] = entry["template"].get<std::string>();
    }
    return {};
  }

  static Result<TokenizerText> read_tokenizer(TokenizerText::Kind kind, const std::string& path,
                                              uint64_t bytes_max) {
    TokenizerText tokenizer{.kind = kind, .name = path};
    MF_ASSIGN_OR_RETURN(tokenizer.text, read_text_file(path, bytes_max));
    MF_RETURN_IF_ERROR(check_is_fetched(path, tokenizer.text));
    return tokenizer;
  }

  /// Keys of a GGUF file that this folder was packed from; null where it was not.
  Result<std::unique_ptr<ModelSource>> open_keys() const {
    const std::string path = formatted("{}/{}", path_, kGgufKeysName);
    if (!path_exists(path)) return std::unique_ptr<ModelSource>();
    return open_gguf_source(path, path, path);
  }

  Result<std::optional<std::string>> read_optional(std::string_view name) const {
    const std::string path = formatted("{}/{}", path_, name);
    if (!path_exists(path)) return std::optional<std::string>();
    MF_ASSIGN_OR_RETURN(std::string text, read_text_file(path, kConfigBytesMax));
    MF_RETURN_IF_ERROR(check_is_fetched(path, text));
    return std::optional<std::string>(std::move(text));
  }

  std::string named_;
  std::string path_;
};

}  // namespace

Result<std::unique_ptr<ModelSource>> open_model_source(const std::string& path) {
  MF_RETURN_IF_ERROR(check_model_folder(path));
  MF_ASSIGN_OR_RETURN(const std::string place, find_model_place(path));
  MF_ASSIGN_OR_RETURN(const std::optional<std::string> gguf, find_gguf(place));
  if (gguf) return open_gguf_source(path, *gguf, place);
  return std::unique_ptr<ModelSource>(std::make_unique<FolderSource>(path, place));
}

}  // namespace moeflux
