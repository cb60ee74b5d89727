// How GGUF names a pre-tokenizer: one word for the expressions that cut a text, the normaliser and
// how pieces are merged. tokenizer.json spells these out; here is what the words stand for.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"

namespace moeflux {

struct NamedSplits {
  std::span<const std::string_view> patterns;  // applied one after another, each to the pieces left
  size_t spelled_patterns = 0;                 // so many at the end see pieces in the byte alphabet
  bool normalize_nfc = false;
  bool ignore_merges = false;   // a piece that is a token becomes it without merging
  bool merges_by_rank = false;  // any two tokens that make a token merge, the lowest id first
  bool add_bos = false;         // where the file does not say
  bool spells_spaces = false;   // no split: characters merge, with U+2581 for spaces
  bool is_guess = false;        // the file lost its own
};

/// The meaning of tokenizer.ggml.pre. The expressions are those of the models' own tokenizer.json,
/// also where other engines approximate them. "default" and the empty name are no pre-tokenizer but
/// a file that lost its own: it is cut as llama.cpp does, which may differ. Fails with
/// kUnsupported, naming the key and the word, when llama.cpp's converter writes it for no
/// byte-level model.
Result<NamedSplits> find_named_splits(std::string_view name);

/// The expressions of the models that come as a tiktoken.model.
std::span<const std::string_view> tiktoken_splits();

}  // namespace moeflux
