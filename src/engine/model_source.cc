#include "engine/model_source.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "checkpoint/expert_pack.h"
#include "engine/gguf_source.h"
#include "engine/model_loader.h"
#include "io/file.h"

namespace moeflux {
namespace {

constexpr uint64_t kConfigBytesMax =
    64 * kMiB;  // the largest public ones, with per-module entries, reach 1 MiB
constexpr uint64_t kTokenizerBytesMax = kGiB;
constexpr uint64_t kRanksBytesMax = 64 * kMiB;

class FolderSource : public ModelSource {
 public:
  explicit FolderSource(std::string path) : path_(std::move(path)) {}

  const std::string& path() const override { return path_; }

  // With Model Optimizer's own file where config.json has no section of it.
  Result<std::string> config() const override {
    MF_ASSIGN_OR_RETURN(std::string text, read_text_file(path_ + "/config.json", kConfigBytesMax));
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

  Result<TensorIndex> tensors() const override { return TensorIndex::open(path_); }

  Result<bool> holds_tensors() const override {
    MF_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_files(path_));
    return std::any_of(names.begin(), names.end(), [](const std::string& name) {
      return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
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

  // A file of its own, or a string of tokenizer_config.json; several by name are no template.
  Result<std::optional<std::string>> chat_template() const override {
    MF_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSource> keys, open_keys());
    if (keys != nullptr) return keys->chat_template();
    MF_ASSIGN_OR_RETURN(std::optional<std::string> jinja, read_optional("chat_template.jinja"));
    if (jinja) return jinja;
    MF_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                        read_optional("tokenizer_config.json"));
    if (!text) return std::optional<std::string>();
    MF_ASSIGN_OR_RETURN(const Json config, parse_json(*text, path_ + "/tokenizer_config.json"));
    if (!config.is_object()) return std::optional<std::string>();
    const auto found = config.find("chat_template");
    if (found == config.end() || !found->is_string()) return std::optional<std::string>();
    return std::optional<std::string>(found->get<std::string>());
  }

  Result<std::optional<std::string>> keys_without_tensors() const override {
    return read_optional(kGgufKeysName);
  }

 private:
  static Result<TokenizerText> read_tokenizer(TokenizerText::Kind kind, const std::string& path,
                                              uint64_t bytes_max) {
    TokenizerText tokenizer{.kind = kind, .name = path};
    MF_ASSIGN_OR_RETURN(tokenizer.text, read_text_file(path, bytes_max));
    return tokenizer;
  }

  /// Keys of a GGUF file that this folder was packed from; null where it was not.
  Result<std::unique_ptr<ModelSource>> open_keys() const {
    const std::string path = formatted("{}/{}", path_, kGgufKeysName);
    if (!path_exists(path)) return std::unique_ptr<ModelSource>();
    return open_gguf_source(path, path);
  }

  Result<std::optional<std::string>> read_optional(std::string_view name) const {
    const std::string path = formatted("{}/{}", path_, name);
    if (!path_exists(path)) return std::optional<std::string>();
    MF_ASSIGN_OR_RETURN(std::string text, read_text_file(path, kConfigBytesMax));
    return std::optional<std::string>(std::move(text));
  }

  std::string path_;
};

}  // namespace

Result<std::unique_ptr<ModelSource>> open_model_source(const std::string& path) {
  MF_RETURN_IF_ERROR(check_model_folder(path));
  MF_ASSIGN_OR_RETURN(const std::optional<std::string> gguf, find_gguf(path));
  if (gguf) return open_gguf_source(path, *gguf);
  return std::unique_ptr<ModelSource>(std::make_unique<FolderSource>(path));
}

}  // namespace moeflux
