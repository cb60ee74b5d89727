// OpenAI's responses that have ended, so that a request may go on from one, until their bytes are
// too many. They live as long as the server.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/json.h"

namespace moeflux::serve {

/// A response with the items that it answered, and the turn it goes on from. Kept as text, which
/// takes a fraction of what JSON in memory does.
class StoredTurn {
 public:
  StoredTurn(std::string input, std::string response, std::shared_ptr<const StoredTurn> previous,
             std::shared_ptr<std::atomic<size_t>> counted);
  ~StoredTurn();
  StoredTurn(const StoredTurn&) = delete;
  StoredTurn& operator=(const StoredTurn&) = delete;

  Json input() const;
  Json response() const;
  /// Items of all turns up to this one, questions and answers, oldest first.
  Json conversation() const;

 private:
  const std::string input_;
  const std::string response_;
  mutable std::shared_ptr<const StoredTurn> previous_;  // taken away by the destructor alone
  const std::shared_ptr<std::atomic<size_t>> counted_;
};

/// Who was used longest ago goes first. Thread-safe.
class ResponseStore {
 public:
  explicit ResponseStore(size_t bytes_max) : bytes_max_(bytes_max) {}

  /// Null where it is not kept, or was erased. A turn stays for as long as anybody has it.
  std::shared_ptr<const StoredTurn> find(const std::string& id);
  /// JSON of both; `previous` is the turn that it goes on from, or null.
  void keep(const std::string& id, std::string input, std::string response,
            std::shared_ptr<const StoredTurn> previous);
  bool erase(const std::string& id);
  /// Bytes of every turn in memory, those too that only later ones have.
  size_t size_bytes() const { return *bytes_; }

 private:
  struct Kept {
    std::shared_ptr<const StoredTurn> turn;
    uint64_t last_use = 0;
  };

  void trim(const std::string& newest);

  const size_t bytes_max_;
  const std::shared_ptr<std::atomic<size_t>> bytes_ = std::make_shared<std::atomic<size_t>>(0);
  std::mutex mutex_;  // guards what follows
  std::map<std::string, Kept> kept_;
  uint64_t uses_ = 0;
};

}  // namespace moeflux::serve
