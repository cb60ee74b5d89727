// The names are those at which llama.cpp ends a text, since files that it wrote or made people
// write rely on them: converters call <|im_end|> normal or user-defined, and name <|endoftext|>
// alone as the end.
#include "text/vocabulary/end_names.h"

#include <algorithm>

namespace moeflux {
namespace {

constexpr std::string_view kEndNames[] = {
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "<|end|>",
    "<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<end_of_turn>", "<turn|>", "<EOT>",
    "_<EOT>", "[EOT]", "[EOS]", "</s>", "<eos>", "[e~[", "<|plamo:eos|>", "<end_of_utterance>",
    // The tool speaks next.
    "<|tool_response>",
    // <|end_of_sentence|> with DeepSeek's bars and spaces.
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
    // Other files begin behind these, which is not the text that was asked for.
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>",
    "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"};

// These begin somebody else's turn. Ordinary text may spell them.
constexpr std::string_view kControlNames[] = {"<|user|>", "<|observation|>"};

template <size_t N>
bool is_among(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

bool is_end_name(std::string_view name) {
  const bool may_be = !name.empty() && (name[0] == '<' || name[0] == '[' || name[0] == '_');
  return may_be && (is_among(kEndNames, name) || is_among(kControlNames, name));
}

std::vector<TokenId> ends_by_name(std::span<const NamedToken> tokens) {
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(tokens, [&](const NamedToken& token) { return token.name == name; });
  };
  // Harmony's <|end|> ends a message, behind which the answer goes on; so does Solar's.
  const bool end_goes_on = (has("<|return|>") && has("<|call|>")) ||
                           (has("<|flush|>") && (has("<|call|>") || has("<|calls|>")));
  // Gemma's vocabularies have the tags of HTML, and an end of their own.
  const bool has_tags = has("<|tool_response>") || has("<|plamo:eos|>");
  std::vector<TokenId> ids;
  for (const NamedToken& token : tokens) {
    bool ends = is_among(kEndNames, token.name) ||
                (token.is_control && is_among(kControlNames, token.name));
    if (token.name == "<|end|>" && end_goes_on) ends = false;
    if (token.name == "</s>" && (has_tags || (has("<eos>") && !token.is_control))) ends = false;
    if (ends) ids.push_back(token.id);
  }
  return ids;
}

std::vector<TokenId> ends_by_name(const std::vector<AddedToken>& tokens) {
  std::vector<NamedToken> named;
  for (const AddedToken& token : tokens) {
    if (is_end_name(token.content)) named.push_back({token.content, token.id, token.special});
  }
  return ends_by_name(std::span<const NamedToken>(named));
}

}  // namespace moeflux
