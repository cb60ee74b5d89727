// States of moeflux.h: checkpoints, truncation, forks, snapshots, prefixes.
#include <utility>

#include "library/outcome.h"

using moeflux::in_turn;
using moeflux::null_argument;
using moeflux::Outcome;
using moeflux::Session;

mf_code mf_sequence_checkpoint(mf_sequence* sequence, uint64_t* checkpoint,
                               mf_error* error) noexcept {
  return in_turn(sequence, error, [&](Session& session) -> Outcome {
    if (checkpoint == nullptr) return null_argument("checkpoint");
    MF_ASSIGN_OR_RETURN(const moeflux::CheckpointId id, session.checkpoint());
    *checkpoint = static_cast<uint64_t>(id);
    return {};
  });
}

mf_code mf_sequence_restore(mf_sequence* sequence, uint64_t checkpoint, mf_error* error) noexcept {
  return in_turn(sequence, error, [&](Session& session) {
    return session.restore(moeflux::CheckpointId{checkpoint});
  });
}

mf_code mf_sequence_drop(mf_sequence* sequence, uint64_t checkpoint, mf_error* error) noexcept {
  return in_turn(sequence, error,
                 [&](Session& session) { return session.drop(moeflux::CheckpointId{checkpoint}); });
}

mf_code mf_sequence_truncate(mf_sequence* sequence, int64_t position, mf_error* error) noexcept {
  return in_turn(sequence, error, [&](Session& session, std::stop_token stop) {
    return session.truncate(position, std::move(stop));
  });
}

mf_code mf_sequence_fork(const mf_sequence* sequence, mf_sequence** fork,
                         mf_error* error) noexcept {
  if (fork != nullptr) *fork = nullptr;
  return in_turn(sequence, error, [&](Session& session) -> Outcome {
    if (fork == nullptr) return null_argument("fork");
    MF_ASSIGN_OR_RETURN(auto forked, session.fork());
    *fork = new mf_sequence{std::move(forked)};
    return {};
  });
}

const void* mf_bytes_data(const mf_bytes* bytes) noexcept {
  return bytes == nullptr || bytes->bytes.empty() ? nullptr : bytes->bytes.data();
}

size_t mf_bytes_size(const mf_bytes* bytes) noexcept {
  return bytes == nullptr ? 0 : bytes->bytes.size();
}

void mf_bytes_free(mf_bytes* bytes) noexcept { delete bytes; }

mf_code mf_sequence_save(const mf_sequence* sequence, mf_bytes** bytes, mf_error* error) noexcept {
  if (bytes != nullptr) *bytes = nullptr;
  return in_turn(sequence, error, [&](Session& session) -> Outcome {
    if (bytes == nullptr) return null_argument("bytes");
    MF_ASSIGN_OR_RETURN(std::vector<std::byte> saved, session.save());
    *bytes = new mf_bytes{std::move(saved)};
    return {};
  });
}

mf_code mf_sequence_load(mf_sequence* sequence, const void* data, size_t size,
                         mf_error* error) noexcept {
  return in_turn(sequence, error, [&](Session& session) -> Outcome {
    if (data == nullptr && size > 0) return null_argument("data");
    return session.load({static_cast<const std::byte*>(data), size});
  });
}

mf_code mf_sequence_save_file(const mf_sequence* sequence, const char* path,
                              mf_error* error) noexcept {
  return in_turn(sequence, error, [&](Session& session) -> Outcome {
    return path == nullptr ? null_argument("path") : Outcome(session.save_file(path));
  });
}

mf_code mf_sequence_load_file(mf_sequence* sequence, const char* path, mf_error* error) noexcept {
  return in_turn(sequence, error, [&](Session& session) -> Outcome {
    return path == nullptr ? null_argument("path") : Outcome(session.load_file(path));
  });
}

mf_code mf_sequence_reuse_prefix(mf_sequence* sequence, const int32_t* tokens, size_t count,
                                 int64_t* reused, mf_error* error) noexcept {
  return in_turn(sequence, error, [&](Session& session) -> Outcome {
    if (tokens == nullptr && count > 0) return null_argument("tokens");
    if (reused == nullptr) return null_argument("reused");
    MF_ASSIGN_OR_RETURN(*reused, session.reuse_prefix({tokens, count}));
    return {};
  });
}

mf_code mf_sequence_keep_prefix(const mf_sequence* sequence, mf_error* error) noexcept {
  return in_turn(sequence, error, [&](Session& session) { return session.keep_prefix(); });
}
