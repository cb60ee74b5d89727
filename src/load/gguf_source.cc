#include "load/gguf_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "checkpoint/foreign_file.h"
#include "checkpoint/gguf_header.h"
#include "io/file.h"
#include "model/gguf/gguf_meanings.h"
#include "model/gguf/gguf_model.h"

namespace moeflux {
namespace {

int64_t draft_blocks(const ModelUse& use) { return use.draft_layer ? 1 : 0; }

class GgufSource : public ModelSource {
 public:
  GgufSource(std::string path, std::string file, std::string place,
             std::shared_ptr<const gguf::Container> model)
      : path_(std::move(path)),
        file_(std::move(file)),
        place_(std::move(place)),
        model_(std::move(model)) {}

  const std::string& path() const override { return path_; }
  const std::string& place() const override { return place_; }

  Result<std::string> config() const override { return gguf_config(*model_); }
  std::string in_its_names(const std::string& message) const override {
    return gguf_message(message, file_, GgufKeys(*model_));
  }
  // A folder may have a projector of pictures beside the model.
  Result<std::string> left_alone(const ModelUse& use) const override {
    MF_ASSIGN_OR_RETURN(std::string text, gguf_left_alone(*model_, draft_blocks(use)));
    const size_t slash = file_.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : file_.substr(0, slash + 1);
    MF_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_files(folder));
    for (const std::string& name : names) {
      if (!name.ends_with(".gguf") || !is_projector(name) || file_.ends_with(name)) continue;
      text += formatted("{}{} beside it is not used: pictures and sound are not read",
                        text.empty() ? "" : "; ", name);
    }
    return text;
  }

  Result<TensorIndex> tensors(const ModelUse& use) const override {
    MF_ASSIGN_OR_RETURN(gguf::Container model, gguf::Container::open(file_));
    MF_ASSIGN_OR_RETURN(TensorIndex index, gguf_tensors(std::move(model), draft_blocks(use)));
    if (place_ != file_) MF_RETURN_IF_ERROR(index.open_expert_pack(place_));
    return index;
  }

  Result<bool> holds_tensors() const override { return !model_->tensors().empty(); }

  Result<TokenizerText> tokenizer() const override {
    const gguf::Keys& keys = model_->keys();
    TokenizerText tokenizer{.kind = TokenizerText::Kind::kGguf, .name = file_};
    constexpr const char* kWhole = "tokenizer.huggingface.json";
    if (keys.find(kWhole) != nullptr) {
      tokenizer.kind = TokenizerText::Kind::kJson;
      MF_ASSIGN_OR_RETURN(tokenizer.text, keys.text(kWhole));
      tokenizer.gguf = model_;
      return tokenizer;
    }
    if (keys.find("tokenizer.ggml.tokens") == nullptr) {
      return make_error(ErrorCode::kNotFound,
                        "{} has no vocabulary: it has no key tokenizer.ggml.tokens", file_);
    }
    tokenizer.gguf = model_;
    return tokenizer;
  }

  Result<std::optional<std::string>> generation_config() const override {
    constexpr std::array<std::pair<const char*, const char*>, 5> kNames = {
        {{"temp", "temperature"},
         {"top_k", "top_k"},
         {"top_p", "top_p"},
         {"min_p", "min_p"},
         {"penalty_repeat", "repetition_penalty"}}};
    Json config = Json::object();
    for (const auto& [stored, name] : kNames) {
      const gguf::Value* value = model_->keys().find(formatted("general.sampling.{}", stored));
      if (value == nullptr) continue;
      if (const auto* number = std::get_if<int64_t>(&value->data)) config[name] = *number;
      // An f32 as people wrote it: 0.8, not 0.800000011920929.
      if (const auto* number = std::get_if<double>(&value->data)) {
        if (!std::isfinite(*number)) {
          return make_error(ErrorCode::kCorruption,
                            "{}: key general.sampling.{} is {}, expected a finite number", path(),
                            stored, *number);
        }
        config[name] = Json::parse(formatted("{}", static_cast<float>(*number)), nullptr, false);
      }
    }
    if (config.empty()) return std::optional<std::string>();
    return std::optional<std::string>(config.dump());
  }

  Result<StoredTemplates> chat_templates() const override {
    constexpr std::string_view kTemplate = "tokenizer.chat_template";
    StoredTemplates stored;
    for (const auto& [key, value] : model_->keys().values()) {
      const bool is_named = key.starts_with(kTemplate) && key.size() > kTemplate.size() + 1 &&
                            key[kTemplate.size()] == '.';
      if (key != kTemplate && !is_named) continue;
      MF_ASSIGN_OR_RETURN(std::string text, model_->keys().text(key));
      const std::string name = is_named ? key.substr(kTemplate.size() + 1) : std::string();
      stored.places[name] = formatted("{}: {}", path(), key);
      if (is_named) {
        stored.named[name] = std::move(text);
      } else {
        stored.text = std::move(text);
      }
    }
    return stored;
  }

  // Its vocabulary names them by id.
  Result<std::vector<std::string>> special_token_maps() const override {
    return std::vector<std::string>();
  }

  Result<std::optional<std::string>> beside(std::string_view) const override {
    return std::optional<std::string>();
  }

  Result<StoredPooling> pooling() const override {
    constexpr size_t kLabelsMax = 64;
    const gguf::Keys& keys = model_->keys();
    StoredPooling stored{.key = model_->architecture() + ".pooling_type"};
    const gguf::Value* type = keys.find(stored.key);
    if (type == nullptr) return stored;
    const auto* number = std::get_if<int64_t>(&type->data);
    if (number == nullptr) {
      return make_error(ErrorCode::kCorruption, "{}: key {} is not a whole number", path(),
                        stored.key);
    }
    stored.type = *number;
    const std::string labels = model_->architecture() + ".classifier.output_labels";
    if (keys.find(labels) == nullptr) return stored;
    MF_RETURN_IF_ERROR(keys.for_each_text(labels, [&](std::string_view label) -> Status {
      if (stored.labels.size() == kLabelsMax) {
        return make_error(ErrorCode::kUnsupported, "{}: key {} has more than {} labels", path(),
                          labels, kLabelsMax);
      }
      stored.labels.emplace_back(label);
      return {};
    }));
    return stored;
  }

  Result<std::optional<std::string>> keys_without_tensors() const override {
    MF_ASSIGN_OR_RETURN(std::string text, gguf::copy_keys(model_->file(0)));
    return std::optional<std::string>(std::move(text));
  }

 private:
  const std::string path_;
  const std::string file_;
  const std::string place_;
  const std::shared_ptr<const gguf::Container> model_;
};

}  // namespace

namespace {

/// By its keys: a projector of pictures, an importance matrix or an adapter.
bool says_it_is_no_model(const std::string& path) {
  const auto file = open_file(path);
  if (!file.ok()) return false;
  const auto header = gguf::read_header(**file);
  if (!header.ok()) return false;
  const auto text_of = [&](const char* key) {
    const auto found = header->keys.find(key);
    const auto* text =
        found == header->keys.end() ? nullptr : std::get_if<std::string>(&found->second.data);
    return text == nullptr ? std::string() : *text;
  };
  const std::string type = text_of("general.type");
  return (!type.empty() && type != "model") || text_of("general.architecture") == "clip";
}

}  // namespace

Result<std::optional<std::string>> find_gguf(const std::string& path) {
  if (!is_directory(path)) {
    if (gguf::begins_with_magic(path)) return std::optional(path);
    return std::optional<std::string>();
  }
  MF_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_files(path));
  const auto has = [&](std::string_view ending) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return name.ends_with(ending) && !is_beside_model(name);
    });
  };
  const bool has_tensors = has(".safetensors") || has(".safetensors.index.json");
  if (has_tensors && path_exists(path + "/config.json")) return std::optional<std::string>();
  std::vector<std::string> found;  // of a split its first part, there or not
  for (const std::string& name : names) {
    if (!name.ends_with(".gguf") || is_beside_model(name)) continue;
    gguf::SplitName split;
    std::string first = gguf::parse_split_name(name, split) ? split.path_of(0) : name;
    if (std::find(found.begin(), found.end(), first) == found.end()) {
      found.push_back(std::move(first));
    }
  }
  if (found.size() > 1) {
    std::erase_if(found, [&](const std::string& name) {
      return says_it_is_no_model(formatted("{}/{}", path, name));
    });
  }
  if (found.empty()) return std::optional<std::string>();
  if (found.size() == 1) return std::optional(formatted("{}/{}", path, found.front()));
  constexpr size_t kShownMax = 12;
  std::string list;
  for (size_t i = 0; i < std::min(found.size(), kShownMax); ++i) {
    list += (i == 0 ? "" : ", ") + found[i];
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "{} has {} GGUF models, expected one; name the file itself ({}/{}): {}{}", path,
                    found.size(), path, found.front(), list,
                    found.size() > kShownMax ? ", ..." : "");
}

Result<std::unique_ptr<ModelSource>> open_gguf_source(const std::string& path,
                                                      const std::string& file,
                                                      const std::string& place) {
  MF_ASSIGN_OR_RETURN(gguf::Container model, gguf::Container::open(file));
  return std::unique_ptr<ModelSource>(std::make_unique<GgufSource>(
      path, file, place, std::make_shared<const gguf::Container>(std::move(model))));
}

}  // namespace moeflux
