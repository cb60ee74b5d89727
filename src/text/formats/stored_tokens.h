// Functions that the builders of stored vocabularies share, whatever the model.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/formats/stored_vocabulary.h"

namespace moeflux {

/// `id` is below the number of tokens, whose list is checked and whose kinds are settled.
TokenKind kind_of(const StoredVocabulary& stored, size_t id);

/// The byte that a token spelled <0xNN> means.
std::optional<char> byte_of_spelling(std::string_view spelling);

/// The same of a token that must mean one. Fails with kCorruption when it is spelled otherwise.
Result<char> byte_of_token(size_t id, std::string_view spelling);

/// The two parts of the merge at `place`. Fails with kCorruption unless one space is between them.
Result<std::pair<std::string_view, std::string_view>> parts_of_merge(const StoredVocabulary& stored,
                                                                     size_t place);

/// Reads the tokens that add_special_tokens puts around a text; `adds_bos` is the default of the
/// model. Fails with kCorruption when the file asks for a token that it does not name.
Status read_affixes(const StoredVocabulary& stored, bool adds_bos, TokenizerParts* parts);

/// Fails with kCorruption when two have one spelling.
Status check_added_tokens(const std::vector<AddedToken>& tokens);

/// BPE over characters: by scores ("llama"), or by a list of merges ("gemma4"), where
/// `always_adds_bos` overrules the file.
Result<Tokenizer> make_from_scores(const StoredVocabulary& stored);
Result<Tokenizer> make_from_character_merges(const StoredVocabulary& stored, bool always_adds_bos);

}  // namespace moeflux
