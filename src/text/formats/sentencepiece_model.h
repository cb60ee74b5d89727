// Tokenizers that come as SentencePiece's tokenizer.model.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/tokenizer.h"

namespace moeflux {

/// Builds the tokenizer from the bytes of tokenizer.model and, unless empty, those of the
/// tokenizer_config.json beside it; `what` names the former in messages.
///
/// Models of type BPE are read with their normaliser, byte fallback, and control and user-defined
/// symbols. UNIGRAM, WORD and CHAR and models with a denormaliser are refused by name. The
/// configuration gives added_tokens_decoder, by content and "special" alone, add_bos_token (true
/// where absent), add_eos_token and add_prefix_space.
///
/// Added tokens in a text are matched first, and each text between two is encoded by itself. Fails
/// with kCorruption, naming the token or the field, for files that contradict themselves.
Result<Tokenizer> parse_sentencepiece(std::string_view model,
                                      std::string_view tokenizer_config_json,
                                      std::string_view what);

}  // namespace moeflux
