// Text to token ids and back, by the byte-level BPE of a tokenizer.json
// (parse) or of a tiktoken.model (parse_tiktoken in tiktoken.h).
//
// These parts of tokenizer.json are honoured:
// - normalizer NFC (or a Sequence of them, or none);
// - pre_tokenizer Split with every behavior, Digits, Punctuation, ByteLevel (also with its own
// GPT-2
//   pattern, and with splits behind it) and Sequences of these;
// - BPE models with both spellings of merges, ignore_merges, unk_token and fuse_unk; a byte that is
//   no token is left out where there is no unk_token;
// - added tokens with all their flags;
// - decoder ByteLevel, post_processor ByteLevel and the single template of TemplateProcessing.
//
// A BPE model with byte_fallback works on characters, unless its decoder is ByteLevel. Then these
// are honoured, as the files of Llama-2, Mixtral and Gemma have them:
// - normalizer Prepend of U+2581 and Replace of spaces by it, in a Sequence or alone, or none;
// - pre_tokenizer Metaspace with every prepend_scheme, or none;
// - decoder Sequence of Replace, ByteFallback, Fuse and perhaps a Strip of one leading space.
//
// "truncation" and "padding" are a training pipeline's business and ignored.
// Everything else (prefixes and suffixes, dropout, other models, types and behaviours) is refused
// by name with kUnsupported.
//
// Text that is not well-formed UTF-8 is encoded as Python's text.decode("utf-8", errors="replace")
// would read it: one U+FFFD for each maximal ill-formed subpart.
//
// Letters, marks and numbers are those of the Unicode version of the PCRE2 and utf8proc in use;
// characters newer than that count as unassigned and may be split otherwise than by a newer
// library.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/bpe/bpe.h"
#include "text/bpe/character_bpe.h"
#include "text/encoding/byte_range.h"
#include "text/regex/pretokenizer.h"
#include "text/spaces/metaspace.h"
#include "text/spaces/sentencepiece_normalizer.h"
#include "text/vocabulary/added_tokens.h"
#include "text/vocabulary/vocabulary.h"

namespace moeflux {

struct EncodeOptions {
  /// Adds what the post_processor's template puts around a text, for example a BOS token. Prompts
  /// from a chat template need none: the template prints it.
  bool add_special_tokens = false;
  /// Text that spells an added token becomes that token. Without, only those that are not special
  /// do, letters and words like any other of the vocabulary, and in tiktoken's vocabularies none:
  /// the text spells no special token.
  bool match_added_tokens = true;
  /// Stretches of the text in which no added token begins or ends: what a user wrote is text,
  /// whatever it spells. Sorted and apart; all else is encoded as without them.
  std::span<const ByteRange> inert_ranges = {};
};

struct DecodeOptions {
  bool skip_special = false;  // leaves out added tokens marked special
  /// The tokens go on with a text, so that a first space is one. SentencePiece begins texts with a
  /// space that nobody wrote, which decoding a whole text takes away.
  bool continues_text = false;
};

/// How far decoding has come.
struct DecodeState {
  bool at_start = true;  // no text yet
};

/// The spaces that decoding a whole text removes at its beginning.
struct LeadingSpace {
  bool first = false;         // one space
  bool all = false;           // and all that follow
  bool of_any_token = false;  // even of special tokens and tokens of a byte
};

/// The parts of a tokenizer, whichever file they come from.
struct TokenizerParts {
  Vocabulary vocabulary;  // as decoding shows it; normalised where an added token is matched so
  Bpe bpe;
  std::optional<CharacterBpe> character_bpe;  // in place of bpe
  std::optional<SentencePieceNormalizer> sentencepiece;
  std::optional<Metaspace> metaspace;  // before pre_tokenizer
  LeadingSpace leading_space;
  PreTokenizer pre_tokenizer;
  std::vector<AddedToken> added_tokens;  // of two with one spelling the first is matched
  std::vector<TokenId> prefix;           // added before a text by add_special_tokens
  std::vector<TokenId> suffix;           // and behind it
  bool normalize_nfc = false;
  bool inert_spells_all_added = false;  // as tiktoken does: not those marked special alone
  bool ignore_merges = false;           // a piece that is a token becomes it without merging
  std::vector<TokenId> end_tokens;
  std::string warning;
};

/// Immutable after construction, pure and thread-safe.
class Tokenizer {
 public:
  explicit Tokenizer(TokenizerParts parts);

  /// Parses the bytes of a tokenizer.json. `what` names the source in messages. Fails with
  /// kCorruption for files that contradict themselves and kUnsupported for what is not honoured.
  static Result<Tokenizer> parse(std::string_view tokenizer_json, std::string_view what);

  /// Linear in the text but for a logarithm (a million characters take a fraction of a second),
  /// whatever the text. Fails with kResourceExhausted above 2^29 bytes, or when a pattern of the
  /// file needs too many steps on this text.
  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options = {}) const;

  /// The text of the tokens, as well-formed UTF-8: incomplete or broken characters become U+FFFD.
  /// Ids that nobody defined (a padded vocabulary has such) are nothing. An added token is always
  /// its content, in normalised form when it is matched after normalisation; the `tokenizers`
  /// library reads contents all of the byte alphabet's characters, as "caf\u00e9", as bytes
  /// instead. Nor does it keep the good characters of byte tokens in a row that are not all UTF-8.
  std::string decode(std::span<const TokenId> ids, DecodeOptions options = {}) const;

  /// The bytes that the next token adds to a text that is decoded token by token.
  std::string_view decode_next(TokenId id, DecodeOptions options, DecodeState* state) const;

  /// The bytes of a token, maybe a part of a character; empty for ids that nobody defined.
  std::string_view token_bytes(TokenId id) const { return parts_.vocabulary.bytes(id); }
  /// The same, fit for a terminal: U+FFFD for broken characters.
  std::string token_text(TokenId id) const;
  bool contains(TokenId id) const { return parts_.vocabulary.contains(id); }
  bool is_special(TokenId id) const;

  /// The id of an added token by its content, else of the token with these bytes.
  std::optional<TokenId> find(std::string_view bytes) const;

  /// Whether pieces are of bytes, not of characters.
  bool is_byte_level() const { return !parts_.character_bpe; }

  /// One past the highest id. Ids below it may be undefined; models may have more logits than this.
  int32_t vocab_size() const { return parts_.vocabulary.size(); }

  /// The tokens that EncodeOptions::add_special_tokens puts before a text.
  const std::vector<TokenId>& prefix() const { return parts_.prefix; }
  /// And behind it.
  const std::vector<TokenId>& suffix() const { return parts_.suffix; }

  /// The tokens that end a text, as the vocabulary says by ids and by names. Others may name more.
  const std::vector<TokenId>& end_tokens() const { return parts_.end_tokens; }

  /// A line on what is done without the file's word, for whoever opens it; empty: nothing.
  const std::string& warning() const { return parts_.warning; }

  /// In the order of the file.
  const std::vector<AddedToken>& added_tokens() const { return parts_.added_tokens; }

 private:
  class Encoding;

  TokenizerParts parts_;
  struct AddedTokenMatchers {
    AddedTokenMatcher all;
    AddedTokenMatcher ordinary;  // added tokens that are not special
  };
  AddedTokenMatchers raw_matchers_;         // before normalisation
  AddedTokenMatchers normalized_matchers_;  // after it
  std::vector<bool> special_;               // by id; ids past its end are not
};

}  // namespace moeflux
