// Embeddings: what a model's last hidden states say of a text, as one vector.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "chat/embedding/embedding_spec.h"
#include "chat/embedding/text_steps.h"

namespace moeflux {

struct EmbedOptions {
  /// The first numbers of each, which are normalised again (Matryoshka); 0: all hidden_size.
  int64_t dimensions = 0;
  InTurn in_turn = in_this_turn;
};

/// The tokens of a text behind the prompt of that name, as the tokenizer's template has them: some
/// models end a text with a token that they pool. Without a name the default prompt, if the model
/// has one. Fails with kInvalidArgument for an unknown name, listing the known ones, for a text
/// without tokens, and as Tokenizer::encode() does.
Result<std::vector<TokenId>> embedding_tokens(const Tokenizer& tokenizer, const EmbeddingSpec& spec,
                                              std::string_view text,
                                              std::string_view prompt_name = {});

/// f32 [texts, dimensions]. The bits of each depend on its tokens alone, not on its company. Fails
/// with kInvalidArgument for dimensions beyond the model's, and as evaluate_texts() does.
Result<std::vector<std::vector<float>>> embed(OpenModel& model, const EmbeddingSpec& spec,
                                              std::span<const std::vector<TokenId>> texts,
                                              const EmbedOptions& options = {});

}  // namespace moeflux
