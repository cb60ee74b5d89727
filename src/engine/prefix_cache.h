// Keeps snapshots of sequences, in memory or in a folder, and finds the one that shares most first
// tokens with a new text. Knows tokens, bytes and files; knows nothing of engines or devices.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace moeflux {

struct PrefixCacheOptions {
  uint64_t capacity_bytes = 0;  // of snapshots
  /// Made unless it exists; its parent must. Empty: in memory. Several processes may share a
  /// folder; each counts the files it knows of.
  std::string directory;
  /// Files of other owners are left alone: who owns a state can compute with it.
  uint64_t owner = 0;
  int64_t tokens_max = 0;  // of a sequence
  /// The least length to which a state of `length` tokens can be cut when it is used:
  /// SequenceState::shortest_truncation().
  std::function<int64_t(int64_t length)> shortest_truncation;
};

/// Thread-compatible.
class PrefixCache {
 public:
  /// Takes in what the folder holds. Files that are damaged are removed, and so is what exceeds the
  /// capacity. Fails with kIo when the folder cannot be made or read.
  static Result<std::unique_ptr<PrefixCache>> open(PrefixCacheOptions options);

  /// Fills a sequence from a snapshot of which the first `length` tokens are wanted.
  using Load = std::function<Status(int64_t length, std::span<const std::byte> snapshot)>;
  /// Loads the kept state that shares most first tokens with `tokens` and says how many; 0 when
  /// there is none. Fails with `load`'s kResourceExhausted; a state that cannot be read or loaded
  /// for any other reason is removed, and the next best is tried.
  Result<int64_t> reuse(std::span<const TokenId> tokens, const Load& load);

  /// False when a snapshot of so many bytes would not be kept: it exceeds the capacity, or a kept
  /// state serves these tokens already; that state counts as used then.
  bool wants(std::span<const TokenId> tokens, uint64_t bytes);
  /// Keeps a snapshot that is wanted. States that it can stand for go, then those that were used
  /// longest ago, until the capacity is kept. Fails with kIo.
  Status keep(std::span<const TokenId> tokens, std::vector<std::byte> snapshot);

  uint64_t size_bytes() const;
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::vector<TokenId> tokens;
    uint64_t size_bytes = 0;
    uint64_t last_use = 0;
    std::vector<std::byte> snapshot;  // empty when it lies in a file
  };

  explicit PrefixCache(PrefixCacheOptions options) : options_(std::move(options)) {}
  Status scan();
  Result<Entry> read_front(const std::string& path) const;
  std::string file_prefix() const;
  std::string path_of(const Entry& entry) const;
  int64_t usable(const Entry& entry, std::span<const TokenId> tokens) const;
  Status load_entry(const Entry& entry, int64_t length, const Load& load) const;
  void remove(size_t i);
  void evict();

  PrefixCacheOptions options_;
  std::vector<Entry> entries_;
  uint64_t uses_ = 0;
};

}  // namespace moeflux
