// The text side of a model: tokenizer, generation defaults and stop tokens.
#pragma once

#include <string>
#include <vector>

#include "base/format.h"
#include "base/ids.h"
#include "base/result.h"
#include "engine/model_source.h"
#include "sampling/sampler.h"
#include "text/tokenizer.h"

namespace moeflux {

/// Reads a folder's tokenizer.json or, without one, tiktoken.model and tokenizer_config.json. Fails
/// with kNotFound naming the files.
Result<Tokenizer> load_tokenizer(const ModelSource& source);
Result<Tokenizer> load_tokenizer(const std::string& path);

/// Sampling and stopping as generation_config.json and config.json have them; both may be absent.
struct GenerationDefaults {
  SamplerOptions sampler;
  std::vector<TokenId> stop_tokens;
};
Result<GenerationDefaults> load_generation_defaults(const ModelSource& source);
Result<GenerationDefaults> load_generation_defaults(const std::string& path);

/// Both.
struct ModelText {
  /// Or why there is none.
  Result<Tokenizer> tokenizer =
      make_error(ErrorCode::kFailedPrecondition, "the model was opened without its tokenizer");
  GenerationDefaults defaults;
};
/// A folder without a tokenizer is no failure, one with a broken tokenizer is.
Result<ModelText> load_model_text(const std::string& directory);

}  // namespace moeflux
