// The text side of a model: tokenizer, generation defaults and stop tokens.
#pragma once

#include <string>
#include <vector>

#include "base/format.h"
#include "base/ids.h"
#include "base/result.h"
#include "chat/embedding/embedding_spec.h"
#include "load/model_source.h"
#include "sampling/sampler.h"
#include "text/tokenizer.h"

namespace moeflux {

/// Reads a folder's tokenizer.json or, without one, tiktoken.model and tokenizer_config.json. Fails
/// with kNotFound naming the files.
Result<Tokenizer> load_tokenizer(const ModelSource& source);
Result<Tokenizer> load_tokenizer(const std::string& path);

struct GenerationDefaults {
  SamplerOptions sampler;  // as generation_config.json has it
  /// The tokens that end a text, from every place that names some: generation_config.json,
  /// config.json (also within text_config), the eos_token of tokenizer_config.json and
  /// special_tokens_map.json, the vocabulary's own ids, and the names of its tokens. Converted
  /// folders keep stale ids in one or the other.
  std::vector<TokenId> stop_tokens;
};

/// All of it.
struct ModelText {
  /// Or why there is none.
  Result<Tokenizer> tokenizer =
      make_error(ErrorCode::kFailedPrecondition, "the model was opened without its tokenizer");
  GenerationDefaults defaults;
  /// Or why the model makes no embeddings.
  Result<EmbeddingSpec> embedding = EmbeddingSpec{};
};
/// A folder without a tokenizer is no failure, one with a broken tokenizer is.
Result<ModelText> load_model_text(const std::string& directory);

}  // namespace moeflux
