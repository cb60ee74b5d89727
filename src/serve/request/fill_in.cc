#include "serve/request/fill_in.h"

#include <array>

namespace moeflux::serve {
namespace {

// The rows are those of Qwen and CodeGemma; of StarCoder and Granite, two; of DeepSeek; of Code
// Llama, with and without SentencePiece's space; of GLM.
constexpr std::array<std::array<std::string_view, 3>, 7> kNames = {{
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},
    {"<PRE>", "<SUF>", "<MID>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
}};

}  // namespace

std::optional<FillInTokens> find_fill_in_tokens(const Tokenizer& tokenizer) {
  for (const auto& [before, behind, gap] : kNames) {
    const auto first = tokenizer.find(before);
    const auto second = tokenizer.find(behind);
    const auto third = tokenizer.find(gap);
    if (first && second && third) return FillInTokens{*first, *second, *third};
  }
  return std::nullopt;
}

Result<std::vector<TokenId>> fill_in_prompt(const Tokenizer& tokenizer, const FillInTokens& tokens,
                                            std::string_view before, std::string_view behind) {
  // The texts around the gap are text, whatever they spell.
  const EncodeOptions text{.match_added_tokens = false};
  MF_ASSIGN_OR_RETURN(const std::vector<TokenId> front, tokenizer.encode(before, text));
  MF_ASSIGN_OR_RETURN(const std::vector<TokenId> back, tokenizer.encode(behind, text));
  std::vector<TokenId> prompt = tokenizer.prefix();
  prompt.push_back(tokens.before);
  prompt.insert(prompt.end(), front.begin(), front.end());
  prompt.push_back(tokens.behind);
  prompt.insert(prompt.end(), back.begin(), back.end());
  prompt.push_back(tokens.gap);
  return prompt;
}

}  // namespace moeflux::serve
