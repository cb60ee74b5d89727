// The vocabulary in the keys of a GGUF file.
#pragma once

#include "base/result.h"
#include "checkpoint/gguf.h"
#include "text/formats/stored_vocabulary.h"

namespace moeflux {

/// Reads the keys below "tokenizer.ggml.". Fails with kCorruption, naming the file and the key, for
/// a key of another type; what the values mean is checked by make_tokenizer().
Result<StoredVocabulary> read_gguf_vocabulary(const gguf::Keys& keys);
/// The part of it that end_of_text_tokens() looks at: tokens, their kinds and the special ids.
Result<StoredVocabulary> read_gguf_tokens(const gguf::Keys& keys);

}  // namespace moeflux
