#include "chat/embedding/embedding_spec.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "text/encoding/spec_fields.h"

namespace moeflux {
namespace {

constexpr const char* kModules = "modules.json";
constexpr const char* kConfig = "config_sentence_transformers.json";
constexpr size_t kModulesMax = 16;
constexpr size_t kPromptsMax = 256;

/// llama.cpp's numbers of `pooling_type`.
enum class GgufPooling : int64_t { kNone = 0, kMean = 1, kCls = 2, kLast = 3, kRank = 4 };

/// "Pooling" of "sentence_transformers.models.Pooling".
std::string_view last_component(std::string_view type) {
  const size_t dot = type.rfind('.');
  return dot == std::string_view::npos ? type : type.substr(dot + 1);
}

/// A folder below the model's own: names come from a file.
bool is_plain_folder(std::string_view path) {
  return !path.empty() && path.find_first_of("/\\:") == std::string_view::npos && path[0] != '.' &&
         std::ranges::all_of(path, [](char c) { return c >= ' ' && c != 0x7f; });
}

/// Reads one folder's files. The first problem sticks.
class FolderReader {
 public:
  explicit FolderReader(const ModelSource& source) : source_(source) {}

  Result<EmbeddingSpec> read() {
    read_prompts();
    read_modules();
    if (!status_.ok()) return status_.error();
    return std::move(spec_);
  }

 private:
  void fail(ErrorCode code, const std::string& file, const std::string& text) {
    if (status_.ok()) status_ = make_error(code, "{}/{}: {}", source_.path(), file, text);
  }

  /// Null where there is no such file.
  Json read_json(const std::string& file) {
    const Result<std::optional<std::string>> text = source_.beside(file);
    if (!text.ok()) {
      if (status_.ok()) status_ = text.error();
      return {};
    }
    if (!*text) return {};
    Result<Json> json = parse_json(**text, formatted("{}/{}", source_.path(), file));
    if (json.ok()) return std::move(json).value();
    if (status_.ok()) status_ = json.error();
    return {};
  }

  void read_prompts() {
    const Json config = read_json(kConfig);
    const Json& prompts = spec_field(config, "prompts");
    if (!prompts.is_null() && (!prompts.is_object() || prompts.size() > kPromptsMax)) {
      return fail(ErrorCode::kCorruption, kConfig,
                  formatted("prompts is {}, expected at most {} texts", json_excerpt(prompts),
                            kPromptsMax));
    }
    for (const auto& [name, text] : prompts.items()) {
      if (!text.is_string()) {
        return fail(ErrorCode::kCorruption, kConfig,
                    formatted("prompts has {} as {}, expected a text", json_excerpt(Json(name)),
                              json_excerpt(text)));
      }
      spec_.prompts[name] = text.get<std::string>();
    }
    const Json& chosen = spec_field(config, "default_prompt_name");
    if (chosen.is_null()) return;
    if (!chosen.is_string() || !spec_.prompts.contains(chosen.get_ref<const std::string&>())) {
      return fail(
          ErrorCode::kCorruption, kConfig,
          formatted("default_prompt_name is {}, expected a name of prompts", json_excerpt(chosen)));
    }
    spec_.default_prompt = chosen.get<std::string>();
  }

  void read_modules() {
    const Json modules = read_json(kModules);
    if (modules.is_null()) return;
    if (!modules.is_array() || modules.size() > kModulesMax) {
      return fail(ErrorCode::kCorruption, kModules,
                  formatted("the file has {}, expected at most {} modules", json_excerpt(modules),
                            kModulesMax));
    }
    spec_.source = kModules;
    spec_.normalize = false;
    for (const Json& module : modules) read_module(module);
  }

  void read_module(const Json& module) {
    const Json& type = spec_field(module, "type");
    const Json& path = spec_field(module, "path");
    if (!type.is_string() || !path.is_string()) {
      return fail(ErrorCode::kCorruption, kModules,
                  formatted("{} has no type and path", json_excerpt(module)));
    }
    const std::string_view name = last_component(type.get_ref<const std::string&>());
    const auto& folder = path.get_ref<const std::string&>();
    if (name == "Transformer" && folder.empty()) return;
    if (name == "Normalize") {
      spec_.normalize = true;
      return;
    }
    if (name != "Pooling" && name != "LogitScore") {
      return fail(
          ErrorCode::kUnsupported, kModules,
          formatted("a module is a {}, expected Transformer, Pooling, Normalize or LogitScore",
                    json_excerpt(type)));
    }
    if (!is_plain_folder(folder)) {
      return fail(ErrorCode::kCorruption, kModules,
                  formatted("the path of {} is {}, expected a folder's name", json_excerpt(type),
                            json_excerpt(path)));
    }
    const std::string file = folder + "/config.json";
    const Json config = read_json(file);
    if (!config.is_object()) {
      return fail(ErrorCode::kNotFound, file, "the file is missing or not an object");
    }
    if (name == "Pooling") return read_pooling(file, config);
    read_logit_score(file, config);
  }

  void read_pooling(const std::string& file, const Json& config) {
    std::vector<std::string> modes;
    constexpr std::string_view kFlag = "pooling_mode_";
    for (const auto& [key, value] : config.items()) {
      if (!key.starts_with(kFlag) || !value.is_boolean() || !value.get<bool>()) continue;
      std::string mode = key.substr(kFlag.size());
      if (mode.ends_with("_tokens")) mode.resize(mode.size() - 7);
      if (mode.ends_with("_token")) mode.resize(mode.size() - 6);
      modes.push_back(std::move(mode));
    }
    const Json& mode = spec_field(config, "pooling_mode");
    if (mode.is_string()) modes = {mode.get<std::string>()};
    constexpr std::array<std::pair<std::string_view, Pooling>, 3> kKnown = {
        {{"lasttoken", Pooling::kLast}, {"mean", Pooling::kMean}, {"cls", Pooling::kCls}}};
    const auto* const known = std::ranges::find_if(
        kKnown, [&](const auto& one) { return modes.size() == 1 && modes[0] == one.first; });
    if (known == kKnown.end()) {
      std::string found;
      for (const std::string& one : modes) found += (found.empty() ? "" : ", ") + one;
      return fail(ErrorCode::kUnsupported, file,
                  formatted("the pooling mode is {}, expected one of lasttoken, mean and cls",
                            found.empty() ? "absent" : json_excerpt(Json(found))));
    }
    spec_.pooling = known->second;
    if (spec_field(config, "include_prompt") == Json(false)) {
      fail(ErrorCode::kUnsupported, file, "include_prompt is false: prompts count in the pooling");
    }
  }

  void read_logit_score(const std::string& file, const Json& config) {
    RerankSpec rerank{.answers = RerankSpec::Answers{}};
    for (const auto& [key, into] : {std::pair{"true_token_id", &rerank.answers->yes},
                                    std::pair{"false_token_id", &rerank.answers->no}}) {
      const Result<int64_t> id = json_int(spec_field(config, key), key);
      if (!id.ok() || *id < 0 || *id > kTokenMax) {
        return fail(ErrorCode::kUnsupported, file,
                    formatted("{} is {}, expected the id of a token", key,
                              json_excerpt(spec_field(config, key))));
      }
      *into = static_cast<TokenId>(*id);
    }
    spec_.rerank = std::move(rerank);
  }

  static constexpr int64_t kTokenMax = (int64_t{1} << 31) - 1;

  const ModelSource& source_;
  EmbeddingSpec spec_;
  Status status_;
};

Result<EmbeddingSpec> read_keys(const ModelSource& source, const StoredPooling& stored) {
  EmbeddingSpec spec{.source = stored.key};
  switch (static_cast<GgufPooling>(*stored.type)) {
    case GgufPooling::kNone:
      return EmbeddingSpec{};
    case GgufPooling::kMean:
      spec.pooling = Pooling::kMean;
      return spec;
    case GgufPooling::kCls:
      spec.pooling = Pooling::kCls;
      return spec;
    case GgufPooling::kLast:
      return spec;
    case GgufPooling::kRank:
      break;
  }
  if (*stored.type != static_cast<int64_t>(GgufPooling::kRank)) {
    return make_error(ErrorCode::kUnsupported, "{}: key {} is {}, expected 0 to 4", source.path(),
                      stored.key, *stored.type);
  }
  RerankSpec rerank;
  const auto yes = std::ranges::find(stored.labels, "yes");
  if (yes != stored.labels.end()) rerank.label = static_cast<size_t>(yes - stored.labels.begin());
  MF_ASSIGN_OR_RETURN(const StoredTemplates templates, source.chat_templates());
  const auto found = templates.named.find("rerank");
  rerank.prompt =
      found == templates.named.end() ? std::string(published_rerank_prompt()) : found->second;
  for (const std::string_view part : {"{query}", "{document}"}) {
    if (rerank.prompt.find(part) != std::string::npos) continue;
    return make_error(ErrorCode::kUnsupported,
                      "{}: key tokenizer.chat_template.rerank has no {}: a prompt is made of a "
                      "query and a document",
                      source.path(), part);
  }
  spec.rerank = std::move(rerank);
  return spec;
}

}  // namespace

std::string_view pooling_name(Pooling pooling) {
  switch (pooling) {
    case Pooling::kLast:
      return "last";
    case Pooling::kMean:
      return "mean";
    case Pooling::kCls:
      return "cls";
  }
  __builtin_unreachable();
}

std::optional<Pooling> find_pooling(std::string_view name) {
  for (const Pooling pooling : {Pooling::kLast, Pooling::kMean, Pooling::kCls}) {
    if (name == pooling_name(pooling)) return pooling;
  }
  return std::nullopt;
}

Result<EmbeddingSpec> read_embedding_spec(const ModelSource& source) {
  MF_ASSIGN_OR_RETURN(const StoredPooling stored, source.pooling());
  if (stored.type) return read_keys(source, stored);
  return FolderReader(source).read();
}

std::string_view published_rerank_prompt() {
  return "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
         "and the Instruct provided. Note that the answer can only be \"yes\" or "
         "\"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, retrieve "
         "relevant passages that answer the query\n<Query>: {query}\n<Document>: "
         "{document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
}

}  // namespace moeflux
