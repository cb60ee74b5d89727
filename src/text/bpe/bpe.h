// Byte-level byte-pair encoding of one piece. Immutable and thread-safe once filled; scratch is the
// caller's.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/bpe/merge_table.h"
#include "text/vocabulary/vocabulary.h"

namespace moeflux {

/// The tokens of a byte that is not in the vocabulary. Vocabularies trained without the whole
/// alphabet lack some: StarCoder's C0, C1, F1 and F5 to FF, SmolLM2's 21.
struct MissingBytes {
  /// By byte, in place of it; empty is nothing.
  std::array<std::vector<TokenId>, 256> spelled = {};
  TokenId unknown = -1;        // where `spelled` has nothing; -1: the byte is left out
  bool fuses_unknown = false;  // one for a run of them
};

class Bpe {
 public:
  /// `merges` are in order of priority. When a pair comes twice, the later place counts. Fails with
  /// kUnsupported when no byte at all is a token: then it is a vocabulary of another kind.
  static Result<Bpe> create(const Vocabulary& vocabulary, const std::vector<BpeMerge>& merges,
                            MissingBytes missing = {});

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

  /// Appends the tokens of a non-empty piece: single bytes, then always the merge of best rank
  /// (leftmost on ties) until none applies. Neighbours of a byte that is left out are neighbours.
  /// O(n log n) in the piece's bytes.
  void append(std::string_view piece, Scratch* scratch, std::vector<TokenId>* out) const;

 private:
  Status read_bytes(const Vocabulary& vocabulary);
  void append_missing(uint8_t byte, std::vector<TokenId>* out) const;

  std::array<TokenId, 256> byte_ids_{};  // -1: none
  MissingBytes missing_;
  MergeTable merges_;
};

}  // namespace moeflux
