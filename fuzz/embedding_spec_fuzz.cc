// The files that say how texts become embeddings, with zero bytes between: modules.json,
// config_sentence_transformers.json and the config of every module. They give a spec that holds
// together, or are refused in one line.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/embedding/embedding_spec.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

/// A folder of these files alone.
class FuzzedSource : public moeflux::ModelSource {
 public:
  explicit FuzzedSource(std::string_view input) {
    for (std::string* file : {&modules_, &config_}) {
      const size_t end = std::min(input.find('\0'), input.size());
      *file = input.substr(0, end);
      input.remove_prefix(std::min(end + 1, input.size()));
    }
    module_ = input;
  }

  moeflux::Result<std::optional<std::string>> beside(std::string_view name) const override {
    require(!name.starts_with('/') && name.find("..") == std::string_view::npos);
    if (name == "modules.json") return text(modules_);
    if (name == "config_sentence_transformers.json") return text(config_);
    require(name.ends_with("/config.json"));
    return text(module_);
  }
  moeflux::Result<moeflux::StoredPooling> pooling() const override {
    return moeflux::StoredPooling{};
  }

  const std::string& path() const override { return path_; }
  const std::string& place() const override { return path_; }
  moeflux::Result<std::string> config() const override { return std::string("{}"); }
  moeflux::Result<moeflux::TensorIndex> tensors(const moeflux::ModelUse& /*use*/) const override {
    std::abort();
  }
  moeflux::Result<bool> holds_tensors() const override { return false; }
  moeflux::Result<moeflux::TokenizerText> tokenizer() const override { std::abort(); }
  moeflux::Result<std::optional<std::string>> generation_config() const override {
    return std::optional<std::string>();
  }
  moeflux::Result<moeflux::StoredTemplates> chat_templates() const override {
    return moeflux::StoredTemplates{};
  }
  moeflux::Result<std::vector<std::string>> special_token_maps() const override {
    return std::vector<std::string>();
  }
  moeflux::Result<std::optional<std::string>> keys_without_tensors() const override {
    return std::optional<std::string>();
  }

 private:
  static std::optional<std::string> text(const std::string& file) {
    return file.empty() ? std::nullopt : std::optional(file);
  }

  const std::string path_ = "folder";
  std::string modules_;
  std::string config_;
  std::string module_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const FuzzedSource source({reinterpret_cast<const char*>(data), size});
  const auto spec = moeflux::read_embedding_spec(source);
  if (!spec.ok()) {
    for (const char c : spec.error().message()) require(static_cast<unsigned char>(c) >= ' ');
    return 0;
  }
  require(spec->default_prompt.empty() || spec->prompts.contains(spec->default_prompt));
  require(!spec->rerank || !spec->rerank->answers ||
          (spec->rerank->answers->yes >= 0 && spec->rerank->answers->no >= 0));
  return 0;
}
