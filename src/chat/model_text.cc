#include "chat/model_text.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/json.h"
#include "chat/gguf_vocabulary.h"
#include "sampling/generation_config.h"
#include "text/sentencepiece_model.h"
#include "text/tiktoken.h"

namespace moeflux {

Result<Tokenizer> load_tokenizer(const ModelSource& source) {
  MF_ASSIGN_OR_RETURN(const TokenizerText stored, source.tokenizer());
  switch (stored.kind) {
    case TokenizerText::Kind::kJson:
      return Tokenizer::parse(stored.text, stored.name);
    case TokenizerText::Kind::kTiktoken:
      return parse_tiktoken(stored.text, stored.config, stored.name);
    case TokenizerText::Kind::kSentencePiece:
      return parse_sentencepiece(stored.text, stored.config, stored.name);
    case TokenizerText::Kind::kGguf: {
      MF_ASSIGN_OR_RETURN(const StoredVocabulary vocabulary,
                          read_gguf_vocabulary(stored.gguf->keys()));
      return make_tokenizer(vocabulary, stored.name);
    }
  }
  __builtin_unreachable();
}

Result<Tokenizer> load_tokenizer(const std::string& directory) {
  MF_ASSIGN_OR_RETURN(const auto source, open_model_source(directory));
  return load_tokenizer(*source);
}

namespace {

void add_stops(const std::vector<TokenId>& stops, GenerationDefaults& defaults) {
  for (const TokenId token : stops) {
    const auto begin = defaults.stop_tokens.begin();
    const auto end = defaults.stop_tokens.end();
    if (std::find(begin, end, token) == end) defaults.stop_tokens.push_back(token);
  }
}

/// A vocabulary of GGUF says itself what ends a text.
Status add_vocabulary_stops(const ModelSource& source, GenerationDefaults& defaults) {
  const Result<TokenizerText> stored = source.tokenizer();
  if (!stored.ok() || stored->kind != TokenizerText::Kind::kGguf) return {};
  MF_ASSIGN_OR_RETURN(const StoredVocabulary vocabulary, read_gguf_tokens(stored->gguf->keys()));
  add_stops(end_of_text_tokens(vocabulary), defaults);
  return {};
}

}  // namespace

Result<GenerationDefaults> load_generation_defaults(const ModelSource& source) {
  GenerationDefaults defaults;
  MF_ASSIGN_OR_RETURN(const std::optional<std::string> generation, source.generation_config());
  if (generation) {
    const std::string path = source.path() + "/generation_config.json";
    MF_ASSIGN_OR_RETURN(const Json json, parse_json(*generation, path));
    Result<SamplerOptions> sampler = sampler_options_from(json);
    if (!sampler.ok()) return sampler.error().with_context(path);
    defaults.sampler = std::move(sampler).value();
    const Result<std::vector<TokenId>> stops = eos_token_ids_from(json);
    if (!stops.ok()) return stops.error().with_context(path);
    add_stops(*stops, defaults);
  }
  MF_RETURN_IF_ERROR(add_vocabulary_stops(source, defaults));
  const Result<std::string> config = source.config();
  if (!config.ok() && config.error().code() == ErrorCode::kNotFound) return defaults;
  if (!config.ok()) return config.error();
  const std::string path = source.path() + "/config.json";
  MF_ASSIGN_OR_RETURN(const Json json, parse_json(*config, path));
  const Result<std::vector<TokenId>> stops = eos_token_ids_from(json);
  if (!stops.ok()) return stops.error().with_context(path);
  add_stops(*stops, defaults);
  return defaults;
}

Result<GenerationDefaults> load_generation_defaults(const std::string& directory) {
  MF_ASSIGN_OR_RETURN(const auto source, open_model_source(directory));
  return load_generation_defaults(*source);
}

Result<ModelText> load_model_text(const std::string& directory) {
  MF_ASSIGN_OR_RETURN(const auto source, open_model_source(directory));
  ModelText text;
  MF_ASSIGN_OR_RETURN(text.defaults, load_generation_defaults(*source));
  text.tokenizer = load_tokenizer(*source);
  if (text.tokenizer.ok() || text.tokenizer.error().code() == ErrorCode::kNotFound) return text;
  return text.tokenizer.error();
}

}  // namespace moeflux
