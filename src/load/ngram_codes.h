// The codes by which n-grams of a model's tokens are hashed, from its tokenizer.
#pragma once

#include <span>

#include "base/result.h"
#include "load/model_source.h"
#include "model/weights/ngram_table.h"

namespace moeflux {

/// Gives codes to the tables that need some. Reads the tokenizer where there is such a table: fails
/// as it does, with kUnsupported where it is no tokenizer.json, and with kCorruption where codes
/// are not as many as config.json says.
Status set_token_codes(std::span<NgramTable> tables, const ModelSource& source);

}  // namespace moeflux
