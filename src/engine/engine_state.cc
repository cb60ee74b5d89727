// Pasts of an engine's sequences: checkpoints, rewinding, snapshots, kept prefixes.
#include <algorithm>
#include <utility>

#include "base/format.h"
#include "engine/engine.h"
#include "engine/snapshot.h"
#include "engine/step_guard.h"
#include "io/file.h"

namespace moeflux {
namespace {

Status check_whole(const Sequence& sequence, bool broken) {
  if (!broken) return {};
  return make_error(ErrorCode::kFailedPrecondition,
                    "the sequence broke at token {} in a step that failed; restore, truncate or "
                    "load it first",
                    sequence.length());
}

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

// True when the first `length` tokens of a snapshot are those of a text, and can be had alone.
bool serves(const SnapshotView& snapshot, std::span<const TokenId> text, int64_t length) {
  const auto held = static_cast<int64_t>(snapshot.tokens.size());
  const auto n = static_cast<size_t>(length);
  if (length > held || n > text.size()) return false;
  if (length < SequenceState::shortest_truncation(snapshot.header.layers, held)) return false;
  return std::ranges::equal(std::span(snapshot.tokens).first(n), text.first(n));
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

Result<CheckpointId> Engine::checkpoint(Sequence& sequence) {
  MF_RETURN_IF_ERROR(check_whole(sequence, sequence.broken_));
  const CheckpointId id{++checkpoints_made_};
  sequence.checkpoints_.emplace(id, sequence.past_.share());
  return id;
}

Status Engine::restore(Sequence& sequence, CheckpointId id) {
  const auto found = sequence.checkpoints_.find(id);
  if (found == sequence.checkpoints_.end()) return no_checkpoint(id);
  sequence.become(found->second.share());
  return {};
}

Status Engine::drop(Sequence& sequence, CheckpointId id) {
  return sequence.checkpoints_.erase(id) == 1 ? Status() : no_checkpoint(id);
}

Status Engine::truncate(Sequence& sequence, int64_t position, std::stop_token stop) {
  if (position < 0 || position > sequence.length()) {
    return make_error(ErrorCode::kInvalidArgument, "cannot keep {} tokens of a sequence of {}",
                      position, sequence.length());
  }
  if (sequence.past_.state->can_truncate(position)) {
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
    MF_RETURN_IF_ERROR(eval(*again, kept.subspan(static_cast<size_t>(from)),
                            {.logits = LogitsMode::kNone, .stop = std::move(stop)}, {}));
  }
  sequence.become(std::move(again->past_));
  return {};
}

uint64_t Engine::state_bytes(int64_t tokens) const {
  uint64_t bytes = 0;
  for (const LayerStateSpec& layer : loaded_->states()) {
    bytes += SequenceState::bytes_held(layer, tokens, prefill_chunk_);
  }
  return bytes;
}

Result<std::unique_ptr<Sequence>> Engine::fork(const Sequence& sequence) {
  MF_RETURN_IF_ERROR(check_whole(sequence, sequence.broken_));
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
  MF_RETURN_IF_ERROR(check_whole(sequence, sequence.broken_));
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
  if (length > context_length()) {
    return make_error(ErrorCode::kResourceExhausted,
                      "the snapshot's {} tokens do not fit the context of {} (see --ctx-size)",
                      length, context_length());
  }
  for (const TokenId token : snapshot.tokens) {
    if (token < 0 || token >= spec().vocab_size) {
      return make_error(ErrorCode::kCorruption,
                        "snapshot: token {} is outside the vocabulary of {}", token,
                        spec().vocab_size);
    }
  }
  MF_ASSIGN_OR_RETURN(std::unique_ptr<SequenceState> state,
                      SequenceState::create(state_memory_, header.layers, prefill_chunk_));
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

Status Engine::save_file(const Sequence& sequence, const std::string& path,
                         std::span<const std::byte> extra) {
  MF_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, save(sequence, extra));
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFileWriter> writer,
                      AtomicFileWriter::create(path, FileAccess::kPrivate));
  MF_RETURN_IF_ERROR(writer->write(bytes));
  return writer->commit();
}

Result<std::vector<std::byte>> Engine::load_file(Sequence& sequence, const std::string& path) {
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, open_file(path));
  const uint64_t bytes_max = snapshot_header(context_length(), kExtraBytesMax).total_bytes();
  if (file->size_bytes() > bytes_max) {
    return make_error(ErrorCode::kResourceExhausted,
                      "{} has {} bytes, expected at most {}: a snapshot of {} tokens, the context",
                      path, file->size_bytes(), bytes_max, context_length());
  }
  std::vector<std::byte> bytes(file->size_bytes());
  MF_RETURN_IF_ERROR(file->read_at(0, bytes));
  Result<std::vector<std::byte>> extra = load(sequence, bytes);
  if (!extra.ok()) return extra.error().with_context(path);
  return extra;
}

Result<int64_t> Engine::reuse_prefix(Sequence& empty, std::span<const TokenId> tokens,
                                     std::string_view client) {
  if (empty.length() != 0) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "the sequence has {} tokens, expected an empty one", empty.length());
  }
  if (prefixes_ == nullptr || tokens.empty()) return int64_t{0};
  const std::span<const TokenId> prefix = tokens.first(tokens.size() - 1);
  const auto load = [&](int64_t length, std::span<const std::byte> bytes) -> Status {
    MF_ASSIGN_OR_RETURN(const SnapshotView view, parse_snapshot(bytes));
    if (!serves(view, prefix, length)) {
      return make_error(ErrorCode::kCorruption,
                        "the cached state belongs to other tokens than it is stored for");
    }
    MF_ASSIGN_OR_RETURN(Past past, past_of(view, length));
    empty.become(std::move(past));
    return {};
  };
  return prefixes_->reuse(prefix, load, client);
}

int64_t Engine::find_prefix(std::span<const TokenId> tokens, std::string_view client) {
  if (prefixes_ == nullptr || tokens.empty()) return 0;
  return prefixes_->find(tokens.first(tokens.size() - 1), client).length;
}

Status Engine::keep_prefix(const Sequence& sequence, std::string_view client) {
  MF_RETURN_IF_ERROR(check_whole(sequence, sequence.broken_));
  const uint64_t bytes = snapshot_header(sequence.length(), 0).total_bytes();
  if (prefixes_ == nullptr || !prefixes_->wants(sequence.tokens(), bytes, client)) return {};
  MF_ASSIGN_OR_RETURN(std::vector<std::byte> snapshot, save(sequence));
  return prefixes_->keep(sequence.tokens(), std::move(snapshot), client);
}

}  // namespace moeflux
