// A vocabulary as a list of tokens with their scores and kinds, which is how GGUF and SentencePiece
// store it, and the tokenizer that it means. Knows nothing about the files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/tokenizer.h"

namespace moeflux {

/// The kinds of tokens, with the numbers of tokenizer.ggml.token_type and of sentencepiece's Type.
/// GGUF also has 0, undefined, which is as normal.
enum class TokenKind : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // hidden when text is shown
  kUserDefined = 4,  // always one token wherever its text stands
  kUnused = 5,
  kByte = 6,  // spelled <0xNN>
};

/// The contents of a file, unchecked. The fields are the keys of GGUF of the same names below
/// "tokenizer.ggml."; nullopt and empty are absent keys.
struct StoredVocabulary {
  std::string model;                // "gpt2", "llama", "gemma4", ...
  std::string pre;                  // names the splits of a "gpt2"
  std::vector<std::string> tokens;  // by id; in the byte alphabet for a "gpt2", else UTF-8
  std::vector<float> scores;        // one a token: higher merges first ("llama"); empty: all 0
  std::vector<int32_t> token_type;  // a TokenKind a token; empty: all normal
  std::vector<std::string> merges;  // "left right", the first merges first ("gpt2", "gemma4")
  bool lacks_merges = false;        // there is no such key
  std::string architecture;         // general.architecture
  std::optional<int64_t> bos_token_id;
  std::optional<int64_t> eos_token_id;
  std::optional<int64_t> eot_token_id;
  std::optional<int64_t> eom_token_id;
  std::optional<int64_t> unknown_token_id;
  std::optional<int64_t> padding_token_id;
  std::vector<int64_t> other_ends;  // ids of other keys that end a text
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  std::optional<bool> add_space_prefix;
  std::optional<bool> remove_extra_whitespaces;
  std::string precompiled_charsmap;  // replacements, see SentencePieceNormalizer
  // Fields that only a tokenizer.model has.
  bool keeps_kinds = false;  // tokens that end a text keep the kind that always matched
  bool escape_whitespaces = true;
  bool whitespace_as_suffix = false;
  std::optional<std::string> unknown_surface;  // how decoding shows the unknown token
};

/// The tokenizer of a stored vocabulary; `what` names its source in messages. Fails with
/// kUnsupported, naming it, for a model or pre-tokenizer that is not known. Fails with kCorruption,
/// naming the token, the merge or the key, for contents that contradict themselves. Such are two
/// tokens with one spelling, a merge whose parts or whole are no tokens, lists of different
/// lengths, and special ids beyond the tokens. Takes some tenths of a second for 250,000 tokens.
///
/// "llama" is SentencePiece's BPE: neighbours merge that make a token, the highest score first. A
/// text begins with a space unless add_space_prefix says no, also behind an added token in it;
/// add_bos_token defaults to true. User-defined tokens are matched as sentencepiece does, in inert
/// text as well. "gemma4" merges characters by a list; it adds the bos token whatever the file
/// says, as converters wrote a wrong value and the model knows no text without it. So does a "gpt2"
/// whose `pre` says that it spells spaces; its add_bos_token holds.
///
/// "gpt2" is byte-level BPE. Control and user-defined tokens are added tokens; unused ones are left
/// out, since they fill the vocabulary up to the rows of the embedding.
///
/// A token that ends a text by its name is a control token, whatever the file calls it, unless it
/// is a normal token that merges make: see ends_by_name(). Where the file has no kinds, so are the
/// tokens that it names by id. Bytes without a token are left out of texts, or the unknown token
/// stands for them where characters merge.
Result<Tokenizer> make_tokenizer(StoredVocabulary stored, std::string_view what);

/// The tokens that end a text: eos, eot, eom, other_ends, and those whose names say so. Sorted,
/// each once; ids beyond the tokens are left out.
std::vector<TokenId> end_of_text_tokens(const StoredVocabulary& stored);

}  // namespace moeflux
