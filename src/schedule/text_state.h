// A text that has been evaluated, and the points of it at which others may branch off.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "chat/session.h"

namespace moeflux {

/// How many first tokens two texts share.
int64_t common_tokens(std::span<const TokenId> a, std::span<const TokenId> b);

/// A session with its checkpoints. Functions that may fail are for the call whose turn it is.
class TextState {
 public:
  explicit TextState(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  Session& session() const { return *session_; }
  const std::shared_ptr<Session>& shared_session() const { return session_; }
  std::span<const TokenId> tokens() const { return session_->tokens(); }
  int64_t length() const { return static_cast<int64_t>(tokens().size()); }
  /// Bytes, as if nothing was shared with others.
  uint64_t size_bytes() const;

  /// Remembers the length at hand: texts may begin from here even where layers cannot forget. Where
  /// there are many, the first stays, which other texts share most often, and the last ones do.
  Status add_checkpoint();
  /// The last one, 0 without any.
  int64_t last_checkpoint() const { return checkpoints_.empty() ? 0 : checkpoints_.back().length; }

  /// The longest part of the first `common` tokens from which another text may begin at once.
  int64_t usable(int64_t common) const;
  /// A text of the first `length` tokens, which usable() gave, that shares memory with this one.
  Result<TextState> branch(int64_t length);
  /// Keeps the whole in the prefix cache and, where layers cannot forget, the last checkpoint.
  Status keep_prefixes(std::string_view client);

 private:
  struct Checkpoint {
    int64_t length = 0;
    CheckpointId id = {};
  };

  /// The result of `use` while the session is at the checkpoint of this length.
  template <typename Use>
  auto at_checkpoint(int64_t length, const Use& use) -> decltype(use());

  std::shared_ptr<Session> session_;
  std::vector<Checkpoint> checkpoints_;  // shortest first
};

}  // namespace moeflux
