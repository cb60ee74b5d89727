#include "chat/model_text.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/json.h"
#include "chat/gguf_vocabulary.h"
#include "sampling/generation_config.h"
#include "text/encoding/spec_fields.h"
#include "text/formats/sentencepiece_model.h"
#include "text/formats/tiktoken.h"

namespace moeflux {

namespace {

void add_stops(const std::vector<TokenId>& stops, GenerationDefaults& defaults) {
  for (const TokenId token : stops) {
    const auto begin = defaults.stop_tokens.begin();
    const auto end = defaults.stop_tokens.end();
    if (std::find(begin, end, token) == end) defaults.stop_tokens.push_back(token);
  }
}

Status add_stops_of(const Json& config, const std::string& path, GenerationDefaults& defaults) {
  const Result<std::vector<TokenId>> stops = eos_token_ids_from(config);
  if (!stops.ok()) return stops.error().with_context(path);
  add_stops(*stops, defaults);
  return {};
}

Status read_generation_config(const ModelSource& source, GenerationDefaults& defaults) {
  MF_ASSIGN_OR_RETURN(const std::optional<std::string> generation, source.generation_config());
  if (!generation) return {};
  const std::string path = source.path() + "/generation_config.json";
  MF_ASSIGN_OR_RETURN(const Json json, parse_json(*generation, path));
  Result<SamplerOptions> sampler = sampler_options_from(json);
  if (!sampler.ok()) return sampler.error().with_context(path);
  defaults.sampler = std::move(sampler).value();
  return add_stops_of(json, path, defaults);
}

/// The ends of a model of text within a model of more are beside its own sizes.
Status read_config(const ModelSource& source, GenerationDefaults& defaults) {
  const Result<std::string> config = source.config();
  if (!config.ok() && config.error().code() == ErrorCode::kNotFound) return {};
  if (!config.ok()) return config.error();
  const std::string path = source.path() + "/config.json";
  MF_ASSIGN_OR_RETURN(const Json json, parse_json(*config, path));
  MF_RETURN_IF_ERROR(add_stops_of(json, path, defaults));
  return add_stops_of(spec_field(json, "text_config"), path, defaults);
}

/// Texts that tokenizer_config.json and special_tokens_map.json call ends, plain or as an added
/// token. A text that is no token of the vocabulary ends nothing.
Status read_special_tokens(const ModelSource& source, const Tokenizer& tokenizer,
                           GenerationDefaults& defaults) {
  MF_ASSIGN_OR_RETURN(const std::vector<std::string> maps, source.special_token_maps());
  for (const std::string& text : maps) {
    MF_ASSIGN_OR_RETURN(const Json map, parse_json(text, source.path() + ": special tokens"));
    for (const char* name : {"eos_token", "eot_token", "eom_token"}) {
      const Json& token = spec_field(map, name);
      const Json& content = token.is_object() ? spec_field(token, "content") : token;
      if (!content.is_string()) continue;
      if (const auto id = tokenizer.find(content.get_ref<const std::string&>())) {
        add_stops({*id}, defaults);
      }
    }
  }
  return {};
}

/// A tokenizer.json within a GGUF file has keys beside it that name ends by id.
Status read_keys(const TokenizerText& stored, const Tokenizer& tokenizer,
                 GenerationDefaults& defaults) {
  if (stored.kind != TokenizerText::Kind::kJson || stored.gguf == nullptr) return {};
  MF_ASSIGN_OR_RETURN(const StoredVocabulary vocabulary, read_gguf_tokens(stored.gguf->keys()));
  for (const auto& id :
       {vocabulary.eos_token_id, vocabulary.eot_token_id, vocabulary.eom_token_id}) {
    if (id && *id < tokenizer.vocab_size()) add_stops({static_cast<TokenId>(*id)}, defaults);
  }
  return {};
}

Result<Tokenizer> parse_tokenizer(const TokenizerText& stored) {
  switch (stored.kind) {
    case TokenizerText::Kind::kJson:
      return Tokenizer::parse(stored.text, stored.name);
    case TokenizerText::Kind::kTiktoken:
      return parse_tiktoken(stored.text, stored.config, stored.name);
    case TokenizerText::Kind::kSentencePiece:
      return parse_sentencepiece(stored.text, stored.config, stored.name);
    case TokenizerText::Kind::kGguf: {
      MF_ASSIGN_OR_RETURN(StoredVocabulary vocabulary, read_gguf_vocabulary(stored.gguf->keys()));
      return make_tokenizer(std::move(vocabulary), stored.name);
    }
  }
  __builtin_unreachable();
}

}  // namespace

Result<Tokenizer> load_tokenizer(const ModelSource& source) {
  MF_ASSIGN_OR_RETURN(const TokenizerText stored, source.tokenizer());
  return parse_tokenizer(stored);
}

Result<Tokenizer> load_tokenizer(const std::string& directory) {
  MF_ASSIGN_OR_RETURN(const auto source, open_model_source(directory));
  return load_tokenizer(*source);
}

Result<ModelText> load_model_text(const std::string& directory) {
  MF_ASSIGN_OR_RETURN(const auto source, open_model_source(directory));
  ModelText text;
  GenerationDefaults& defaults = text.defaults;
  MF_RETURN_IF_ERROR(read_generation_config(*source, defaults));
  const Result<TokenizerText> stored = source->tokenizer();
  if (stored.ok()) {
    text.tokenizer = parse_tokenizer(*stored);
    if (!text.tokenizer.ok()) return text.tokenizer.error();
    add_stops(text.tokenizer->end_tokens(), defaults);
    MF_RETURN_IF_ERROR(read_keys(*stored, *text.tokenizer, defaults));
    MF_RETURN_IF_ERROR(read_special_tokens(*source, *text.tokenizer, defaults));
  } else {
    if (stored.error().code() != ErrorCode::kNotFound) return stored.error();
    text.tokenizer = stored.error();
  }
  MF_RETURN_IF_ERROR(read_config(*source, defaults));
  text.embedding = read_embedding_spec(*source);
  return text;
}

}  // namespace moeflux
