// Texts that have ended and may be gone on with, until their tokens are too many.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "schedule/text_state.h"

namespace moeflux {

/// The least recently used state goes first. One thread; begin() and write_next() for the call
/// whose turn it is.
class KeptStates {
 public:
  explicit KeptStates(int64_t tokens_max) : tokens_max_(tokens_max) {}

  /// The kept text of which most first tokens of a new one can be used.
  struct Match {
    int64_t usable = 0;  // 0: there is none
    size_t at = 0;
    int64_t common = 0;  // the most that any shares, usable or not
  };
  /// Texts of other clients are none.
  Match find(std::span<const TokenId> tokens, std::string_view client) const;
  /// The matched text is the one that was used last.
  void use(const Match& match) { texts_[match.at].last_use = ++uses_; }
  /// A text of the matched tokens: the kept one itself, if that is all of it, or a branch.
  Result<TextState> begin(const Match& match);

  /// Others go where all would exceed tokens_max. One that exceeds it alone is not kept.
  void keep(TextState text, std::string client);
  /// The one not used for longest goes. False when there is none.
  bool evict();
  /// Texts go until the others take no more than so many bytes, but one that was used last if
  /// `but_the_last`.
  void trim(uint64_t bytes_max, bool but_the_last);
  void clear() { texts_.clear(); }

  size_t size() const { return texts_.size(); }
  int64_t tokens() const;
  uint64_t size_bytes() const;

  bool has_unwritten() const;
  /// Brings the newest text that was not yet to the prefix cache. Fails as Session::keep_prefix()
  /// does, and does not try again.
  Status write_next();

 private:
  struct Kept {
    TextState state;
    std::string client;
    uint64_t last_use = 0;
    bool is_written = false;
  };

  int64_t tokens_max_;
  std::vector<Kept> texts_;
  uint64_t uses_ = 0;
};

}  // namespace moeflux
