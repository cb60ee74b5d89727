// The treatment of spaces by a tokenizer.json whose first symbols are characters: its normalizer,
// pre_tokenizer and decoder. Files of Llama-2, Mixtral and Gemma say little else.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "base/result.h"
#include "text/spaces/metaspace.h"

namespace moeflux {

struct CharacterRules {
  bool replaces_spaces = false;  // by U+2581, in the normalizer
  bool prepends_space = false;   // to each text between two added tokens, likewise
  std::optional<Metaspace> metaspace;
  bool strips_first_space = false;  // where a decoded text begins

  /// The normalizer's form of an added token that is matched behind it.
  std::string normalize(std::string_view content) const;
};

/// `file` is a tokenizer.json without its tables. Fails with kUnsupported, naming it, for each
/// type, order or field that means something else.
Result<CharacterRules> read_character_rules(const Json& file);

}  // namespace moeflux
