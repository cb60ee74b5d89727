// Byte-pair merging of one piece. Immutable and thread-safe once filled; scratch is the caller's.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/vocabulary.h"

namespace moeflux {

struct BpeMerge {
  TokenId left;
  TokenId right;
  TokenId merged;
};

class Bpe {
 public:
  /// `merges` are in order of priority. When a pair comes twice, the later place counts. Fails with
  /// kUnsupported when a byte that occurs in UTF-8 is no token.
  static Result<Bpe> create(const Vocabulary& vocabulary, const std::vector<BpeMerge>& merges);

  /// Merges without a list: any two neighbours whose bytes together are a token, the lowest id
  /// first. All tokens count, so the vocabulary must not hold added tokens yet. Quadratic in the
  /// length of the longest token. Fails as create() does, and with kResourceExhausted when there
  /// are more than 2^22 such pairs.
  static Result<Bpe> create_from_ranks(const Vocabulary& vocabulary);

  /// Memory that append() reuses from piece to piece.
  struct Scratch {
    struct Symbol {
      TokenId id;
      int32_t previous;
      int32_t next;  // -1 at the end; a merged-away symbol has id -1
    };
    struct Candidate {
      uint32_t rank;
      int32_t place;
      TokenId merged;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  /// Appends the tokens of a non-empty piece of well-formed UTF-8: single bytes, then always the
  /// merge of best rank (leftmost on ties) until none applies. O(n log n) in the piece's bytes.
  void append(std::string_view piece, Scratch* scratch, std::vector<TokenId>* out) const;

 private:
  struct Slot {
    uint64_t pair;
    uint32_t rank;
    TokenId merged;
  };
  static constexpr uint64_t kFree = ~uint64_t{0};
  static constexpr uint32_t kNoRank = ~uint32_t{0};

  Status read_bytes(const Vocabulary& vocabulary);
  void reserve(size_t pairs_count);
  void put(Slot entry);
  Slot find(TokenId left, TokenId right) const;
  void append_short(std::string_view piece, std::vector<TokenId>* out) const;
  void append_long(std::string_view piece, Scratch* scratch, std::vector<TokenId>* out) const;
  void push_candidate(Scratch* scratch, int32_t place) const;

  std::array<TokenId, 256> byte_ids_{};
  std::vector<Slot> slots_;  // open addressing, at most 2/3 full
};

}  // namespace moeflux
