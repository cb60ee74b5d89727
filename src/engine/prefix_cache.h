// Keeps snapshots of sequences, in memory or in a folder, and finds the one that shares most first
// tokens with a new text. Knows tokens and bytes; knows nothing of engines or devices.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "store/shelf.h"

namespace moeflux {

struct PrefixCacheOptions {
  uint64_t capacity_bytes = 0;  // of snapshots
  /// Made unless it exists; its parent must. Empty: in memory. Processes and owners may share a
  /// folder; the capacity is that of all their states.
  std::string directory;
  /// Files of other owners are not used: who owns a state can compute with it. A client's states
  /// have an owner made of both.
  uint64_t owner = 0;
  int64_t tokens_max = 0;  // of a sequence; longer states are of use if they can be cut
  /// The least length to which a state of `length` tokens can be cut when it is used:
  /// SequenceState::shortest_truncation().
  std::function<int64_t(int64_t length)> shortest_truncation;
};

/// Thread-compatible. A `client` names whose text it is: what one has kept is nothing to others.
/// Empty: nobody's in particular.
class PrefixCache {
 public:
  /// Takes in what the folder holds for the owner. States that exceed the capacity are removed, and
  /// so are the owner's files that are damaged. Fails with kIo when the folder cannot be made or
  /// read.
  static Result<std::unique_ptr<PrefixCache>> open(PrefixCacheOptions options);

  /// Fills a sequence from a snapshot of which the first `length` tokens are wanted.
  using Load = std::function<Status(int64_t length, std::span<const std::byte> snapshot)>;
  /// Loads the kept state that shares most first tokens with `tokens` and says how many, at most
  /// tokens_max; 0 when there is none. Fails with `load`'s kResourceExhausted; a state that cannot
  /// be read or loaded for any other reason is forgotten, its file removed if that is damaged, and
  /// the next best is tried.
  Result<int64_t> reuse(std::span<const TokenId> tokens, const Load& load,
                        std::string_view client = {});
  /// The kept state that reuse() tries first, and how many first tokens it shares.
  struct Match {
    int64_t length = 0;  // 0: there is none
    size_t entry = 0;
  };
  Match find(std::span<const TokenId> tokens, std::string_view client = {});

  /// False when a snapshot of so many bytes would not be kept: it exceeds the capacity, or a kept
  /// state serves these tokens already; that state counts as used then.
  bool wants(std::span<const TokenId> tokens, uint64_t bytes, std::string_view client = {});
  /// Keeps a snapshot that is wanted. The client's states that it can stand for go, then those of
  /// the folder that were used longest ago, until the capacity is kept. Fails with kIo.
  Status keep(std::span<const TokenId> tokens, std::vector<std::byte> snapshot,
              std::string_view client = {});

  /// Bytes of the owner's states, of clients that were here.
  uint64_t size_bytes() const;
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::vector<TokenId> tokens;
    uint64_t size_bytes = 0;
    std::string name;  // on the shelf
    uint64_t owner = 0;
  };

  explicit PrefixCache(PrefixCacheOptions options) : options_(std::move(options)) {}
  uint64_t owner_of(std::string_view client) const;
  uint64_t known_owner(std::string_view client);
  bool is_own(std::string_view name) const;
  Status scan(uint64_t owner);
  int64_t usable(const Entry& entry, std::span<const TokenId> tokens) const;
  Status load_entry(const Entry& entry, int64_t length, const Load& load) const;
  void forget(size_t i);
  void remove(size_t i);

  PrefixCacheOptions options_;
  std::set<uint64_t> owners_;  // whose states have been looked for
  std::unique_ptr<Shelf> shelf_;
  std::vector<Entry> entries_;
};

}  // namespace moeflux
