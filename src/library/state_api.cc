// States of moeflux.h: checkpoints, truncation, forks, snapshots, prefixes.
#include <utility>

#include "base/format.h"
#include "library/outcome.h"
#include "library/snapshot_extra.h"

namespace moeflux {
namespace {

// The engine's half and ours are replaced together or not at all.
template <typename Load>
Status load_both(mf_sequence& sequence, Load&& load) {
  Engine& engine = *sequence.open->engine;
  // A broken sequence has no state to return to.
  const Result<CheckpointId> before = engine.checkpoint(*sequence.sequence);
  Result<SnapshotExtra> extra = [&]() -> Result<SnapshotExtra> {
    MF_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, load());
    if (bytes.empty()) return SnapshotExtra{sequence.sampler, {}};
    Result<SnapshotExtra> unpacked = unpack_extra(bytes, engine.spec().vocab_size);
    if (!unpacked.ok() && before.ok()) {
      MF_RETURN_IF_ERROR(engine.restore(*sequence.sequence, *before));
    }
    return unpacked;
  }();
  if (before.ok()) MF_RETURN_IF_ERROR(engine.drop(*sequence.sequence, *before));
  if (!extra.ok()) return extra.error();
  sequence.sampler = std::move(extra->sampler);
  sequence.logits = std::move(extra->logits);
  return {};
}

}  // namespace
}  // namespace moeflux

using moeflux::in_turn;
using moeflux::null_argument;
using moeflux::Outcome;

mf_code mf_sequence_checkpoint(mf_sequence* sequence, uint64_t* checkpoint,
                               mf_error* error) noexcept {
  return in_turn(sequence, error, [&]() -> Outcome {
    if (checkpoint == nullptr) return null_argument("checkpoint");
    MF_ASSIGN_OR_RETURN(const moeflux::CheckpointId id,
                        sequence->open->engine->checkpoint(*sequence->sequence));
    *checkpoint = static_cast<uint64_t>(id);
    sequence->checkpoints[*checkpoint] = {sequence->sampler, sequence->logits};
    return {};
  });
}

mf_code mf_sequence_restore(mf_sequence* sequence, uint64_t checkpoint, mf_error* error) noexcept {
  return in_turn(sequence, error, [&]() -> Outcome {
    MF_RETURN_IF_ERROR(
        sequence->open->engine->restore(*sequence->sequence, moeflux::CheckpointId{checkpoint}));
    const mf_sequence::Kept& kept = sequence->checkpoints[checkpoint];
    sequence->sampler = kept.sampler;
    sequence->logits = kept.logits;
    return {};
  });
}

mf_code mf_sequence_drop(mf_sequence* sequence, uint64_t checkpoint, mf_error* error) noexcept {
  return in_turn(sequence, error, [&]() -> Outcome {
    MF_RETURN_IF_ERROR(
        sequence->open->engine->drop(*sequence->sequence, moeflux::CheckpointId{checkpoint}));
    sequence->checkpoints.erase(checkpoint);
    return {};
  });
}

mf_code mf_sequence_truncate(mf_sequence* sequence, int64_t position, mf_error* error) noexcept {
  return in_turn(sequence, error, [&](std::stop_token stop) -> Outcome {
    const int64_t before = sequence->sequence->length();
    MF_RETURN_IF_ERROR(
        sequence->open->engine->truncate(*sequence->sequence, position, std::move(stop)));
    if (position != before) sequence->logits.clear();
    return {};
  });
}

mf_code mf_sequence_fork(const mf_sequence* sequence, mf_sequence** fork,
                         mf_error* error) noexcept {
  if (fork != nullptr) *fork = nullptr;
  return in_turn(sequence, error, [&]() -> Outcome {
    if (fork == nullptr) return null_argument("fork");
    MF_ASSIGN_OR_RETURN(auto forked, sequence->open->engine->fork(*sequence->sequence));
    *fork = new mf_sequence(sequence->open, std::move(forked), sequence->sampler,
                            sequence->turn_timeout_ms);
    (*fork)->logits = sequence->logits;
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
  return in_turn(sequence, error, [&]() -> Outcome {
    if (bytes == nullptr) return null_argument("bytes");
    MF_ASSIGN_OR_RETURN(
        std::vector<std::byte> saved,
        sequence->open->engine->save(*sequence->sequence,
                                     moeflux::pack_extra(sequence->sampler, sequence->logits)));
    *bytes = new mf_bytes{std::move(saved)};
    return {};
  });
}

mf_code mf_sequence_load(mf_sequence* sequence, const void* data, size_t size,
                         mf_error* error) noexcept {
  return in_turn(sequence, error, [&]() -> Outcome {
    if (data == nullptr && size > 0) return null_argument("data");
    return moeflux::load_both(*sequence, [&] {
      return sequence->open->engine->load(*sequence->sequence,
                                          {static_cast<const std::byte*>(data), size});
    });
  });
}

mf_code mf_sequence_save_file(const mf_sequence* sequence, const char* path,
                              mf_error* error) noexcept {
  return in_turn(sequence, error, [&]() -> Outcome {
    if (path == nullptr) return null_argument("path");
    return sequence->open->engine->save_file(
        *sequence->sequence, path, moeflux::pack_extra(sequence->sampler, sequence->logits));
  });
}

mf_code mf_sequence_load_file(mf_sequence* sequence, const char* path, mf_error* error) noexcept {
  return in_turn(sequence, error, [&]() -> Outcome {
    if (path == nullptr) return null_argument("path");
    return moeflux::load_both(
        *sequence, [&] { return sequence->open->engine->load_file(*sequence->sequence, path); });
  });
}

mf_code mf_sequence_reuse_prefix(mf_sequence* sequence, const int32_t* tokens, size_t count,
                                 int64_t* reused, mf_error* error) noexcept {
  return in_turn(sequence, error, [&]() -> Outcome {
    if (tokens == nullptr && count > 0) return null_argument("tokens");
    if (reused == nullptr) return null_argument("reused");
    MF_ASSIGN_OR_RETURN(*reused,
                        sequence->open->engine->reuse_prefix(*sequence->sequence, {tokens, count}));
    sequence->logits.clear();
    return {};
  });
}

mf_code mf_sequence_keep_prefix(const mf_sequence* sequence, mf_error* error) noexcept {
  return in_turn(sequence, error, [&]() -> Outcome {
    return sequence->open->engine->keep_prefix(*sequence->sequence);
  });
}
