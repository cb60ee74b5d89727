// Neighbours that merge, their result, and their order: the loop of every byte-pair encoding,
// whatever its first symbols are. Immutable and thread-safe once filled; scratch is the caller's.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace moeflux {

struct BpeMerge {
  TokenId left;
  TokenId right;
  TokenId merged;
};

class MergeTable {
 public:
  /// Makes room for this many pairs and forgets those there are.
  void reserve(size_t pairs_count);
  /// At most as many as there is room for. The least rank merges first; when a pair comes twice,
  /// the later call counts.
  void put(BpeMerge merge, uint32_t rank);
  /// Symbols that never stay: where one is left in the end, it is replaced by the two symbols that
  /// last were neighbours and could have made it, as sentencepiece does with unused pieces.
  void set_passing(std::vector<bool> is_passing_by_id) {
    is_passing_ = std::move(is_passing_by_id);
  }

  /// Memory that append() reuses from call to call.
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
    std::vector<std::pair<TokenId, TokenId>> parts_of;  // passing symbols met so far, by id
  };

  /// Appends what is left of the symbols after always doing the merge of best rank (leftmost on
  /// ties) until none applies. O(n log n).
  void append(std::span<const TokenId> symbols, Scratch* scratch, std::vector<TokenId>* out) const;

 private:
  struct Slot {
    uint64_t pair;
    uint32_t rank;
    TokenId merged;
  };
  static constexpr uint64_t kFree = ~uint64_t{0};
  static constexpr uint32_t kNoRank = ~uint32_t{0};

  Slot find(TokenId left, TokenId right) const;
  void append_short(std::span<const TokenId> symbols, std::vector<TokenId>* out) const;
  void append_long(std::span<const TokenId> symbols, Scratch* scratch,
                   std::vector<TokenId>* out) const;
  void push_candidate(Scratch* scratch, int32_t place) const;
  bool is_passing(TokenId id) const {
    return static_cast<size_t>(id) < is_passing_.size() && is_passing_[static_cast<size_t>(id)];
  }
  void append_staying(TokenId id, const Scratch& scratch, std::vector<TokenId>* out) const;

  std::vector<Slot> slots_ = std::vector<Slot>(1, Slot{kFree, kNoRank, -1});  // open addressing
  std::vector<bool> is_passing_;  // by id; ids past its end are not
};

}  // namespace moeflux
