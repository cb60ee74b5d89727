// tokenizer.json as data: the two big tables apart, the rest as a small JSON tree.
// A DOM of the whole file would cost seconds: objects of our Json search their keys one by one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace moeflux {

struct TokenizerFile {
  Json rest;  // the file, with null in place of model.vocab and model.merges when taken out
  std::vector<std::pair<std::string, int64_t>> vocab;       // spelling and id
  std::vector<std::pair<std::string, std::string>> merges;  // in order of priority
};

/// Parses untrusted text. Fails with kCorruption on syntax errors, nesting deeper than 128, objects
/// of more than 10,000 keys or with a key twice, ids that are no integers, and merges that are
/// neither "a b" nor ["a", "b"]. `what` names the source in messages.
Result<TokenizerFile> parse_tokenizer_file(std::string_view text, std::string_view what);

}  // namespace moeflux
