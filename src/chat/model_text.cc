#include "chat/model_text.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "io/file.h"
#include "sampling/generation_config.h"
#include "text/tiktoken.h"

namespace moeflux {
namespace {

constexpr uint64_t kTokenizerBytesMax = kGiB;
constexpr uint64_t kConfigBytesMax = 64 * kMiB;
constexpr uint64_t kRanksBytesMax = 64 * kMiB;

Result<Tokenizer> load_tiktoken(const std::string& directory, const std::string& ranks_path) {
  MF_ASSIGN_OR_RETURN(const std::string ranks, read_text_file(ranks_path, kRanksBytesMax));
  MF_ASSIGN_OR_RETURN(const std::string config,
                      read_text_file(directory + "/tokenizer_config.json", kConfigBytesMax));
  return parse_tiktoken(ranks, config, ranks_path);
}

}  // namespace

Result<Tokenizer> load_tokenizer(const std::string& directory) {
  const std::string json_path = directory + "/tokenizer.json";
  const std::string ranks_path = directory + "/tiktoken.model";
  if (is_directory(directory) && !path_exists(json_path)) {
    if (path_exists(ranks_path)) return load_tiktoken(directory, ranks_path);
    return make_error(ErrorCode::kNotFound,
                      "{}: the model folder has neither tokenizer.json nor tiktoken.model",
                      directory);
  }
  MF_ASSIGN_OR_RETURN(const std::string json, read_text_file(json_path, kTokenizerBytesMax));
  return Tokenizer::parse(json, json_path);
}

Result<GenerationDefaults> load_generation_defaults(const std::string& directory) {
  GenerationDefaults defaults;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string path = directory + "/" + name;
    if (!path_exists(path)) continue;
    MF_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kConfigBytesMax));
    MF_ASSIGN_OR_RETURN(const Json json, parse_json(text, path));
    if (std::string_view(name) == "generation_config.json") {
      Result<SamplerOptions> sampler = sampler_options_from(json);
      if (!sampler.ok()) return sampler.error().with_context(path);
      defaults.sampler = std::move(sampler).value();
    }
    const Result<std::vector<TokenId>> stops = eos_token_ids_from(json);
    if (!stops.ok()) return stops.error().with_context(path);
    for (const TokenId token : *stops) {
      const auto begin = defaults.stop_tokens.begin();
      const auto end = defaults.stop_tokens.end();
      if (std::find(begin, end, token) == end) defaults.stop_tokens.push_back(token);
    }
  }
  return defaults;
}

Result<ModelText> load_model_text(const std::string& directory) {
  ModelText text;
  MF_ASSIGN_OR_RETURN(text.defaults, load_generation_defaults(directory));
  text.tokenizer = load_tokenizer(directory);
  if (text.tokenizer.ok() || text.tokenizer.error().code() == ErrorCode::kNotFound) return text;
  return text.tokenizer.error();
}

}  // namespace moeflux
