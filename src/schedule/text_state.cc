#include "schedule/text_state.h"

#include <algorithm>
#include <utility>

namespace moeflux {
namespace {

// Each holds recurrent states of its own: tens of megabytes of a large hybrid model.
constexpr size_t kCheckpointsMax = 4;

}  // namespace

int64_t common_tokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

uint64_t TextState::size_bytes() const {
  const Engine& engine = *session_->model()->engine;
  return engine.state_bytes(length()) + checkpoints_.size() * engine.state_bytes(0);
}

Status TextState::add_checkpoint() {
  if (last_checkpoint() == length()) return {};
  MF_ASSIGN_OR_RETURN(const CheckpointId id, session_->checkpoint());
  checkpoints_.push_back({length(), id});
  if (checkpoints_.size() <= kCheckpointsMax) return {};
  const auto oldest = checkpoints_.begin() + 1;
  MF_RETURN_IF_ERROR(session_->drop(oldest->id));
  checkpoints_.erase(oldest);
  return {};
}

int64_t TextState::usable(int64_t common) const {
  if (session_->can_truncate(common)) return common;
  int64_t longest = 0;
  for (const Checkpoint& checkpoint : checkpoints_) {
    if (checkpoint.length <= common) longest = std::max(longest, checkpoint.length);
  }
  return longest;
}

template <typename Use>
auto TextState::at_checkpoint(int64_t length, const Use& use) -> decltype(use()) {
  const auto checkpoint = std::ranges::find(checkpoints_, length, &Checkpoint::length);
  MF_CHECK(checkpoint != checkpoints_.end());
  MF_ASSIGN_OR_RETURN(const CheckpointId end, session_->checkpoint());
  MF_RETURN_IF_ERROR(session_->restore(checkpoint->id));
  auto used = use();
  MF_RETURN_IF_ERROR(session_->restore(end));
  MF_RETURN_IF_ERROR(session_->drop(end));
  return used;
}

Result<TextState> TextState::branch(int64_t length) {
  if (!session_->can_truncate(length)) {
    MF_ASSIGN_OR_RETURN(std::shared_ptr<Session> branch,
                        at_checkpoint(length, [&] { return session_->fork(); }));
    return TextState(std::move(branch));
  }
  MF_ASSIGN_OR_RETURN(std::shared_ptr<Session> branch, session_->fork());
  MF_RETURN_IF_ERROR(branch->truncate(length));
  return TextState(std::move(branch));
}

Status TextState::keep_prefixes(std::string_view client) {
  const bool forgets = session_->model()->engine->loaded().shortest_truncation(length()) == 0;
  if (!forgets && !checkpoints_.empty() && last_checkpoint() < length()) {
    MF_RETURN_IF_ERROR(
        at_checkpoint(last_checkpoint(), [&] { return session_->keep_prefix(client); }));
  }
  return session_->keep_prefix(client);
}

}  // namespace moeflux
