// Encoding: repair, added tokens, normalisation, splits, then BPE with a cache of pieces per call.
#include "text/tokenizer.h"

#include <algorithm>
#include <bit>
#include <deque>

#include "base/format.h"
#include "text/encoding/unicode.h"
#include "text/encoding/utf8.h"

namespace moeflux {

// Tokens of pieces seen earlier in this call. Direct-mapped: a newer piece replaces an older one,
// so it is as small as it was made. Tokens are not stored but found again in the output.
class PieceCache {
 public:
  explicit PieceCache(size_t text_bytes)
      : entries_(std::bit_ceil(std::clamp(text_bytes / 8, size_t{16}, size_t{8192}))) {}

  struct Entry {
    std::string_view piece;
    size_t out_begin = 0;
    size_t out_count = 0;
  };

  Entry& slot(std::string_view piece) {
    return entries_[hash_bytes(piece) & (entries_.size() - 1)];
  }

 private:
  std::vector<Entry> entries_;
};

namespace {

constexpr size_t kTextBytesMax = size_t{1} << 29;

constexpr size_t kCachedPieceBytesMax = 128;

struct NeedleChoice {
  bool normalized = false;
  bool special = true;
};

std::vector<std::pair<std::string, AddedToken>> needles_of(const TokenizerParts& parts,
                                                           NeedleChoice choice) {
  std::vector<std::pair<std::string, AddedToken>> needles;
  for (const AddedToken& token : parts.added_tokens) {
    const bool is_spelt = token.special || parts.inert_spells_all_added;
    if (token.normalized != choice.normalized || (is_spelt && !choice.special)) continue;
    needles.emplace_back(token.needle.empty() ? token.content : token.needle, token);
  }
  return needles;
}

bool is_ascii(char c) { return static_cast<uint8_t>(c) < 0x80; }

}  // namespace

// One encode() call.
class Tokenizer::Encoding {
 public:
  Encoding(const Tokenizer& tokenizer, size_t text_bytes, EncodeOptions options)
      : tokenizer_(tokenizer),
        options_(options),
        matchers_(tokenizer.parts_.pre_tokenizer.make_matchers()),
        cache_(text_bytes) {
    out_.reserve(text_bytes / 4 + 8);
  }

  Result<std::vector<TokenId>> run(std::string_view text) {
    const auto append = [&](const std::vector<TokenId>& ids) {
      if (options_.add_special_tokens) out_.insert(out_.end(), ids.begin(), ids.end());
    };
    append(tokenizer_.parts_.prefix);
    for (const TextSegment& segment : cut(tokenizer_.raw_matchers_, text, options_.inert_ranges)) {
      if (segment.id >= 0) {
        out_.push_back(segment.id);
      } else {
        const auto begin = static_cast<size_t>(segment.text.data() - text.data());
        MF_RETURN_IF_ERROR(
            encode_raw(segment.text, begin == 0, inert_within(begin, segment.text.size())));
      }
    }
    append(tokenizer_.parts_.suffix);
    return std::move(out_);
  }

 private:
  std::vector<TextSegment> cut(const AddedTokenMatchers& matchers, std::string_view text,
                               std::span<const ByteRange> inert) const {
    std::vector<TextSegment> segments;
    const AddedTokenMatcher& matcher =
        options_.match_added_tokens ? matchers.all : matchers.ordinary;
    if (!matcher.empty()) {
      matcher.split(text, &segments, inert);
    } else if (!text.empty()) {
      segments.push_back({text, -1});
    }
    return segments;
  }

  // The inert ranges inside a segment, from its begin; only who normalises asks for them.
  std::vector<ByteRange> inert_within(size_t begin, size_t size) const {
    std::vector<ByteRange> within;
    if (tokenizer_.normalized_matchers_.all.empty()) return within;
    for (const ByteRange& range : options_.inert_ranges) {
      if (range.end <= begin || range.begin >= begin + size) continue;
      within.push_back(
          {std::max(range.begin, begin) - begin, std::min(range.end, begin + size) - begin});
    }
    return within;
  }

  // Where inert ranges of `text` lie once it is in NFC. They grow to where an ASCII character
  // begins: none is composed with what stands before it, so pieces may be normalised apart.
  static Result<std::vector<ByteRange>> moved_by_nfc(const std::vector<ByteRange>& inert,
                                                     std::string_view text) {
    std::vector<ByteRange> there;
    size_t from = 0;
    size_t to = 0;
    for (const ByteRange& range : inert) {
      size_t begin = std::max(range.begin, from);
      while (begin > from && !is_ascii(text[begin])) --begin;
      size_t end = std::max(range.end, begin);
      while (end < text.size() && !is_ascii(text[end])) ++end;
      if (begin == end) continue;  // the one before has grown over it
      MF_ASSIGN_OR_RETURN(const std::string before, normalize_nfc(text.substr(from, begin - from)));
      MF_ASSIGN_OR_RETURN(const std::string within, normalize_nfc(text.substr(begin, end - begin)));
      there.push_back({to + before.size(), to + before.size() + within.size()});
      from = end;
      to = there.back().end;
    }
    return there;
  }

  // `is_first`: the text begins with this.
  Status encode_raw(std::string_view text, bool is_first, std::vector<ByteRange> inert) {
    if (tokenizer_.parts_.sentencepiece) return encode_sentencepiece(text, is_first, inert);
    if (tokenizer_.parts_.normalize_nfc) {
      if (!std::all_of(text.begin(), text.end(), is_ascii)) {
        MF_ASSIGN_OR_RETURN(std::string normalized, normalize_nfc(text));
        MF_ASSIGN_OR_RETURN(inert, moved_by_nfc(inert, text));
        text = kept_.emplace_back(std::move(normalized));
      }
    }
    return encode_between_added(text, is_first, inert);
  }

  Status encode_between_added(std::string_view text, bool is_first,
                              std::span<const ByteRange> inert) {
    for (const TextSegment& segment : cut(tokenizer_.normalized_matchers_, text, inert)) {
      if (segment.id >= 0) {
        out_.push_back(segment.id);
      } else {
        const bool begins = is_first && segment.text.data() == text.data();
        MF_RETURN_IF_ERROR(encode_normalized(segment.text, begins));
      }
    }
    return {};
  }

  // User-defined symbols are a part of the model, so they are found in inert text, too.
  Status encode_sentencepiece(std::string_view text, bool is_first,
                              const std::vector<ByteRange>& text_inert) {
    const SentencePieceNormalizer& normalizer = *tokenizer_.parts_.sentencepiece;
    std::vector<TextSegment> segments;
    const std::string& normalized = kept_.emplace_back(normalizer.apply(text));
    // An added token in inert text is not looked for nearby either: spaces that the normaliser adds
    // move what follows.
    const std::vector<ByteRange> inert =
        text_inert.empty() ? text_inert : std::vector<ByteRange>{{0, normalized.size()}};
    normalizer.symbols().split(normalized, &segments);
    for (const TextSegment& segment : segments) {
      if (segment.id >= 0) {
        out_.push_back(segment.id);
      } else {
        const bool begins = is_first && segment.text.data() == normalized.data();
        const std::vector<ByteRange> here =
            inert.empty() ? inert : std::vector<ByteRange>{{0, segment.text.size()}};
        MF_RETURN_IF_ERROR(encode_between_added(segment.text, begins, here));
      }
    }
    return {};
  }

  Status encode_normalized(std::string_view text, bool is_first) {
    const auto& metaspace = tokenizer_.parts_.metaspace;
    if (metaspace) text = kept_.emplace_back(metaspace->apply(text, is_first));
    pieces_.assign(1, text);
    std::vector<std::string> prefixed;
    MF_RETURN_IF_ERROR(tokenizer_.parts_.pre_tokenizer.split(matchers_, &pieces_, &prefixed));
    for (const std::string_view piece : pieces_) encode_piece(piece);
    // The cache may point into these strings; moving the vector leaves them where they are.
    if (!prefixed.empty()) kept_lists_.push_back(std::move(prefixed));
    return {};
  }

  void encode_piece(std::string_view piece) {
    if (piece.size() > kCachedPieceBytesMax) return encode_anew(piece);
    PieceCache::Entry& entry = cache_.slot(piece);
    const size_t begin = out_.size();
    if (entry.piece == piece) {
      for (size_t i = 0; i < entry.out_count; ++i) {
        const TokenId id = out_[entry.out_begin + i];
        out_.push_back(id);
      }
      return;
    }
    encode_anew(piece);
    entry = {piece, begin, out_.size() - begin};
  }

  void encode_anew(std::string_view piece) {
    if (tokenizer_.parts_.ignore_merges) {
      const auto id = tokenizer_.parts_.vocabulary.find(piece);
      if (id && !tokenizer_.is_special(*id)) {
        out_.push_back(*id);
        return;
      }
    }
    if (tokenizer_.parts_.character_bpe) {
      tokenizer_.parts_.character_bpe->append(piece, &character_scratch_, &out_);
    } else {
      tokenizer_.parts_.bpe.append(piece, &scratch_, &out_);
    }
  }

  const Tokenizer& tokenizer_;
  const EncodeOptions options_;
  std::vector<Regex::Matcher> matchers_;
  PieceCache cache_;
  Bpe::Scratch scratch_;
  CharacterBpe::Scratch character_scratch_;
  std::vector<std::string_view> pieces_;
  std::deque<std::string> kept_;                     // normalised texts that pieces point into
  std::deque<std::vector<std::string>> kept_lists_;  // likewise, of add_prefix_space
  std::vector<TokenId> out_;
};

Tokenizer::Tokenizer(TokenizerParts parts)
    : parts_(std::move(parts)),
      raw_matchers_{AddedTokenMatcher(needles_of(parts_, {.normalized = false})),
                    AddedTokenMatcher(needles_of(parts_, {.normalized = false, .special = false}))},
      normalized_matchers_{
          AddedTokenMatcher(needles_of(parts_, {.normalized = true})),
          AddedTokenMatcher(needles_of(parts_, {.normalized = true, .special = false}))},
      special_(static_cast<size_t>(parts_.vocabulary.size())) {
  for (const AddedToken& token : parts_.added_tokens) {
    if (token.special) special_[static_cast<size_t>(token.id)] = true;
  }
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kTextBytesMax) {
    return make_error(ErrorCode::kResourceExhausted, "text of {} bytes, at most {} can be encoded",
                      text.size(), kTextBytesMax);
  }
  if (is_valid_utf8(text)) return Encoding(*this, text.size(), options).run(text);
  if (!options.inert_ranges.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "text with inert ranges is not UTF-8, which would move them");
  }
  const std::string repaired = replace_invalid_utf8(text);
  return Encoding(*this, repaired.size(), options).run(repaired);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, DecodeOptions options) const {
  std::string bytes;
  DecodeState state;
  for (const TokenId id : ids) bytes += decode_next(id, options, &state);
  return replace_invalid_utf8(bytes);
}

std::string_view Tokenizer::decode_next(TokenId id, DecodeOptions options,
                                        DecodeState* state) const {
  std::string_view bytes = token_bytes(id);
  if (bytes.empty() || (options.skip_special && is_special(id))) return {};
  const LeadingSpace& leading = parts_.leading_space;
  const bool may_strip = state->at_start && !options.continues_text && leading.first;
  state->at_start = false;
  if (!may_strip || !bytes.starts_with(' ')) return bytes;
  const bool is_byte = parts_.character_bpe && id == parts_.character_bpe->byte_token(' ');
  if ((is_special(id) || is_byte) && !leading.of_any_token) return bytes;
  bytes.remove_prefix(1);
  state->at_start = bytes.empty() && leading.all;
  return bytes;
}

std::string Tokenizer::token_text(TokenId id) const {
  return replace_invalid_utf8(token_bytes(id));
}

bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && id < vocab_size() && special_[static_cast<size_t>(id)];
}

std::optional<TokenId> Tokenizer::find(std::string_view bytes) const {
  for (const AddedToken& token : parts_.added_tokens) {
    if (token.content == bytes) return token.id;
  }
  return parts_.vocabulary.find(bytes);
}

}  // namespace moeflux
