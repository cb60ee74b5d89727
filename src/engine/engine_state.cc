// Pasts of an engine's sequences: checkpoints, rewinding, snapshots.
#include <algorithm>
#include <utility>

#include "base/format.h"
#include "engine/engine.h"
#include "engine/snapshot.h"
#include "engine/step_guard.h"

namespace moeflux {
namespace {

Status no_checkpoint(CheckpointId id) {
  return make_error(ErrorCode::kNotFound, "the sequence has no checkpoint {}",
                    static_cast<uint64_t>(id));
}

// How many of `tokens` a past stands for, once what follows them has been forgotten.
int64_t usable_tokens(const Past& past, std::span<const TokenId> tokens) {
  const auto end = std::ranges::mismatch(past.tokens, tokens).in1;
  const int64_t common = end - past.tokens.begin();
  return past.state->can_truncate(common) ? common : 0;
}

Status check_states(std::span<const LayerStateSpec> found,
                    std::span<const LayerStateSpec> expected) {
  if (found.size() != expected.size()) {
    return make_error(ErrorCode::kInvalidArgument, "the snapshot has {} layers, expected {}",
                      found.size(), expected.size());
  }
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "layer {} of the snapshot keeps {}, expected {} (see --cache-type-k)", i,
                      to_string(found[i]), to_string(expected[i]));
  }
  return {};
}

}  // namespace

Status Sequence::check_whole() const {
  if (!broken_) return {};
  return make_error(ErrorCode::kFailedPrecondition,
                    "the sequence broke at token {} in a step that failed; restore, truncate or "
                    "load it first",
                    length());
}

Result<CheckpointId> Engine::checkpoint(Sequence& sequence) {
  MF_RETURN_IF_ERROR(sequence.check_whole());
  const CheckpointId id{++checkpoints_made_};
  sequence.checkpoints_.emplace(id, sequence.past_.share());
  return id;
}

Status Engine::restore(Sequence& sequence, CheckpointId id, RestoreOptions options) {
  const auto found = sequence.checkpoints_.find(id);
  if (found == sequence.checkpoints_.end()) return no_checkpoint(id);
  Past past = found->second.share();
  if (options.keeps_drafts && spec().draft_layers > 0) {
    past.state->share_layer(draft_layer(), *sequence.past_.state);
  }
  sequence.become(std::move(past));
  return {};
}

Status Engine::drop(Sequence& sequence, CheckpointId id) {
  return sequence.checkpoints_.erase(id) == 1 ? Status() : no_checkpoint(id);
}

Status Engine::truncate(Sequence& sequence, int64_t position, std::stop_token stop,
                        std::function<bool(int64_t)> progress) {
  if (position < 0 || position > sequence.length()) {
    return make_error(ErrorCode::kInvalidArgument, "cannot keep {} tokens of a sequence of {}",
                      position, sequence.length());
  }
  if (sequence.can_truncate(position)) {
    sequence.past_.truncate(position);
    sequence.broken_ = false;
    return {};
  }
  const auto kept = sequence.tokens().first(static_cast<size_t>(position));
  const Past* nearest = nullptr;
  int64_t from = 0;
  for (const auto& [id, past] : sequence.checkpoints_) {
    const int64_t usable = usable_tokens(past, kept);
    if (usable > from) {
      from = usable;
      nearest = &past;
    }
  }
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<Sequence> again, create_sequence());
  if (nearest != nullptr) {
    again->become(nearest->share());
    again->past_.truncate(from);
  }
  if (from < position) {
    MF_RETURN_IF_ERROR(eval(
        *again, kept.subspan(static_cast<size_t>(from)),
        {.logits = LogitsMode::kNone, .stop = std::move(stop), .progress = std::move(progress)},
        {}));
  }
  sequence.become(std::move(again->past_));
  return {};
}

uint64_t Engine::state_bytes(int64_t tokens) const {
  return moeflux::state_bytes(*loaded_, tokens, prefill_chunk_);
}

Result<std::unique_ptr<Sequence>> Engine::fork(const Sequence& sequence) {
  MF_RETURN_IF_ERROR(sequence.check_whole());
  return std::unique_ptr<Sequence>(new Sequence(sequence.past_.share()));
}

SnapshotHeader Engine::snapshot_header(int64_t tokens, uint64_t extra_bytes) const {
  return {.model = fingerprint_,
          .num_tokens = static_cast<uint64_t>(tokens),
          .extra_bytes = extra_bytes,
          .layers = loaded_->states()};
}

Result<std::vector<std::byte>> Engine::save(const Sequence& sequence,
                                            std::span<const std::byte> extra) {
  MF_RETURN_IF_ERROR(sequence.check_whole());
  if (extra.size() > kExtraBytesMax) {
    return make_error(ErrorCode::kInvalidArgument, "{} bytes beside a state, expected at most {}",
                      extra.size(), kExtraBytesMax);
  }
  SnapshotBuilder builder(snapshot_header(sequence.length(), extra.size()), sequence.tokens(),
                          extra);
  const SequenceState& state = *sequence.past_.state;
  for (int32_t i = 0; i < state.num_layers(); ++i) {
    MF_RETURN_IF_ERROR(
        state.read_layer(*encoder_, LayerId{i}, builder.layer(static_cast<size_t>(i))));
  }
  return std::move(builder).finish();
}

Result<Past> Engine::past_of(const SnapshotView& snapshot, int64_t length) {
  const SnapshotHeader& header = snapshot.header;
  if (header.model == fingerprint_) {
    MF_RETURN_IF_ERROR(check_states(header.layers, loaded_->states()));
  } else {
    return make_error(ErrorCode::kInvalidArgument,
                      "the snapshot is of a model with fingerprint {:016x}, expected {:016x}",
                      header.model, fingerprint_);
  }
  if (length > plan_.context_length) {
    return make_error(ErrorCode::kResourceExhausted,
                      "the snapshot's {} tokens do not fit the context of {} (see --ctx-size)",
                      length, plan_.context_length);
  }
  const int64_t readable = std::max(spec().vocab_size, spec().padded_vocab_size);
  for (const TokenId token : snapshot.tokens) {
    if (token < 0 || token >= readable) {
      return make_error(ErrorCode::kCorruption,
                        "snapshot: token {} is outside the vocabulary of {}", token, readable);
    }
  }
  MF_ASSIGN_OR_RETURN(
      std::unique_ptr<SequenceState> state,
      SequenceState::create(state_memory_, loaded_->states(), prefill_chunk_, encoder_.get()));
  const auto held = static_cast<int64_t>(snapshot.tokens.size());
  Past past{std::move(state), {snapshot.tokens.begin(), snapshot.tokens.begin() + length}};
  StepGuard guard(*encoder_);
  MF_RETURN_IF_ERROR(past.state->fill(*encoder_, {.length = length, .of = held}, snapshot.layers));
  guard.has_run();
  return past;
}

Result<std::vector<std::byte>> Engine::load(Sequence& sequence,
                                            std::span<const std::byte> snapshot) {
  MF_ASSIGN_OR_RETURN(const SnapshotView view, parse_snapshot(snapshot));
  MF_ASSIGN_OR_RETURN(Past past, past_of(view, static_cast<int64_t>(view.tokens.size())));
  std::vector<std::byte> extra(view.extra.begin(), view.extra.end());
  sequence.become(std::move(past));
  return extra;
}

}  // namespace moeflux
