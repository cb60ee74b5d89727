// Token ids and their bytes, both ways. Immutable once filled; ids may have gaps.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace moeflux {

class Vocabulary {
 public:
  /// Ids above are refused: the table is as long as the highest id, whoever wrote the file.
  static constexpr int64_t kIdMax = (int64_t{1} << 22) - 1;

  /// Fails with kCorruption when the id or, among findable tokens, the bytes are there already, or
  /// when the id is out of range. Tokens that are not findable only have bytes for decoding.
  Status add(int64_t id, std::string_view bytes, bool findable);
  /// Makes find() know a token by other bytes than its own, where these are no token's.
  void add_name(TokenId id, std::string_view bytes);

  /// One past the highest id.
  int32_t size() const { return static_cast<int32_t>(entries_.size()); }
  bool contains(TokenId id) const;
  /// The bytes of a token; empty for ids that nobody defined.
  std::string_view bytes(TokenId id) const;
  std::optional<TokenId> find(std::string_view bytes) const;

 private:
  struct Entry {
    uint32_t begin = 0;
    uint32_t bytes_count = 0;
    bool defined = false;
  };
  void grow_index();
  size_t slot_of(std::string_view bytes) const;

  std::string arena_;
  std::vector<Entry> entries_;  // by id
  std::vector<TokenId> index_;  // open addressing over bytes; -1 is free
  size_t indexed_count_ = 0;
  std::map<std::string, TokenId, std::less<>> names_;  // by other bytes than their own; few
};

/// A well-mixed hash of bytes, the same on every platform.
uint64_t hash_bytes(std::string_view bytes);

}  // namespace moeflux
