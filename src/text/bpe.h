// Byte-level byte-pair encoding of one piece. Immutable and thread-safe once filled; scratch is the
// caller's.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/merge_table.h"
#include "text/vocabulary.h"

namespace moeflux {

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
    std::vector<TokenId> bytes;
    MergeTable::Scratch merging;
  };

  /// Appends the tokens of a non-empty piece of well-formed UTF-8: single bytes, then always the
  /// merge of best rank (leftmost on ties) until none applies. O(n log n) in the piece's bytes.
  void append(std::string_view piece, Scratch* scratch, std::vector<TokenId>* out) const;

 private:
  Status read_bytes(const Vocabulary& vocabulary);

  std::array<TokenId, 256> byte_ids_{};
  MergeTable merges_;
};

}  // namespace moeflux
