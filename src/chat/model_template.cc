#include "chat/model_template.h"

#include <array>
#include <utility>
#include <vector>

#include "chat/gguf_vocabulary.h"

namespace moeflux {
namespace {

constexpr std::array kTokenNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token"};

void add_tokens_of(const Json& map, Json& tokens) {
  if (!map.is_object()) return;
  for (const char* name : kTokenNames) {
    const auto found = map.find(name);
    if (found == map.end() || tokens.contains(name)) continue;
    const bool is_added_token = found->is_object() && found->contains("content");
    const Json& content = is_added_token ? (*found)["content"] : *found;
    if (content.is_string()) tokens[name] = content;
  }
}

/// A vocabulary of GGUF has ids.
Status add_tokens_of(const StoredVocabulary& vocabulary, Json& tokens) {
  const auto add = [&](const char* name, const std::optional<int64_t>& id) {
    if (!id || *id < 0 || static_cast<size_t>(*id) >= vocabulary.tokens.size()) return;
    tokens[name] = vocabulary.tokens[static_cast<size_t>(*id)];
  };
  add("bos_token", vocabulary.bos_token_id);
  add("eos_token", vocabulary.eos_token_id);
  add("unk_token", vocabulary.unknown_token_id);
  add("pad_token", vocabulary.padding_token_id);
  return {};
}

}  // namespace

Result<Json> load_special_tokens(const ModelSource& source) {
  Json tokens = Json::object();
  MF_ASSIGN_OR_RETURN(const std::vector<std::string> maps, source.special_token_maps());
  for (const std::string& text : maps) {
    MF_ASSIGN_OR_RETURN(const Json map, parse_json(text, source.path() + ": special tokens"));
    add_tokens_of(map, tokens);
  }
  const Result<TokenizerText> stored = source.tokenizer();
  if (stored.ok() && stored->kind == TokenizerText::Kind::kGguf) {
    MF_ASSIGN_OR_RETURN(const StoredVocabulary vocabulary, read_gguf_tokens(stored->gguf->keys()));
    MF_RETURN_IF_ERROR(add_tokens_of(vocabulary, tokens));
  }
  return tokens;
}

Result<ChatTemplate> load_chat_template(const ModelSource& source, const Tokenizer* tokenizer,
                                        const std::optional<GivenTemplate>& given) {
  TemplateTexts texts{.what = source.path(), .text = {}, .named = {}};
  if (given) {
    texts.text = given->text;
    texts.places[""] = given->place;
  } else {
    MF_ASSIGN_OR_RETURN(StoredTemplates stored, source.chat_templates());
    texts.text = std::move(stored.text);
    texts.named = std::move(stored.named);
    texts.places = std::move(stored.places);
  }
  MF_ASSIGN_OR_RETURN(Json tokens, load_special_tokens(source));
  SpecialSpellings spellings;
  if (tokenizer != nullptr) spellings = SpecialSpellings(tokenizer->added_tokens());
  return ChatTemplate::create(texts, std::move(tokens), std::move(spellings));
}

}  // namespace moeflux
