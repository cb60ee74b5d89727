// How an engine evaluates: calls as steps, and steps of many sequences.
#include <algorithm>
#include <functional>
#include <new>
#include <numeric>

#include "base/check.h"
#include "base/format.h"
#include "engine/engine.h"
#include "engine/step_guard.h"

namespace moeflux {
namespace {

// Fewer tokens fill no tiles of matrix units.
constexpr int64_t kPipedRowsLeast = 512;

// As insert() grows, but before anything has happened that would have to be undone.
void make_room(std::vector<TokenId>& tokens, size_t more) {
  const size_t size = tokens.size() + more;
  if (tokens.capacity() < size) tokens.reserve(std::max(size, 2 * tokens.capacity()));
}

// Fits into a string without memory of its own.
Error out_of_memory() { return {ErrorCode::kResourceExhausted, "out of memory"}; }

}  // namespace

// Reads the rows that items want of what the head sees, where forward() shows it: the rows lie in
// scratch and need no memory of their own.
class Engine::HiddenReader : public HiddenObserver {
 public:
  HiddenReader(Engine& engine, HiddenObserver* next)
      : engine_(engine),
        next_(next),
        last_(engine.spec().num_text_layers() + (engine.spec().streams.count > 1 ? 1 : 0)) {}

  void hidden_state(Encoder& encoder, int64_t layer, Tensor hidden) override {
    if (next_ != nullptr) next_->hidden_state(encoder, layer, hidden);
    if (layer != last_) return;
    status_ = engine_.read_hidden(hidden);
    has_read_ = true;
  }
  Status status() const { return status_; }
  bool has_read() const { return has_read_; }

 private:
  Engine& engine_;
  HiddenObserver* const next_;
  const int64_t last_;
  bool has_read_ = false;
  Status status_;
};

Status Engine::check_tokens(const Sequence& sequence, std::span<const TokenId> tokens) const {
  if (sequence.broken_) {
    return make_error(
        ErrorCode::kFailedPrecondition,
        "the sequence broke at token {} in a step that failed; restore, truncate or load it, or "
        "start a new one",
        sequence.length());
  }
  if (tokens.empty()) return make_error(ErrorCode::kInvalidArgument, "no tokens to evaluate");
  // A padded table has rows that no head writes.
  const int64_t readable = std::max(spec().vocab_size, spec().padded_vocab_size);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= readable) {
      return make_error(ErrorCode::kInvalidArgument,
                        "token {} at position {} is outside the vocabulary of {}", tokens[i],
                        sequence.length() + static_cast<int64_t>(i), readable);
    }
  }
  const int64_t after = sequence.length() + static_cast<int64_t>(tokens.size());
  if (after > plan_.context_length) {
    return make_error(ErrorCode::kResourceExhausted,
                      "{} tokens after {} do not fit the context of {} (see --ctx-size)",
                      tokens.size(), sequence.length(), plan_.context_length);
  }
  return {};
}

Status Engine::check_item(std::span<const StepItem> items, size_t at) const {
  const StepItem& item = items[at];
  MF_CHECK(item.sequence != nullptr);
  for (size_t i = 0; i < at; ++i) {
    if (items[i].sequence != item.sequence) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "items {} and {} are of one sequence, expected each once", i, at);
  }
  return check_tokens(*item.sequence, item.tokens);
}

Status Engine::eval(Sequence& sequence, std::span<const TokenId> tokens, const EvalOptions& options,
                    const LogitsSink& sink) {
  StepItem item{.sequence = &sequence,
                .tokens = tokens,
                .options = {.logits = options.logits,
                            .stop = options.stop,
                            .observer = options.observer,
                            .best = options.best,
                            .phase = options.phase}};
  // By reference: copies of what they hold would take memory.
  if (options.progress) item.options.progress = std::ref(options.progress);
  if (sink) item.sink = std::ref(sink);
  eval_step(std::span(&item, 1));
  // Without logits nothing has been read, and work may still run: see forward().
  const bool may_run = device_->num_parts() > 1 && options.logits == LogitsMode::kNone;
  if (may_run && item.outcome.ok()) item.outcome = encoder_->wait(encoder_->submit());
  return item.outcome;
}

void Engine::eval_step(std::span<StepItem> items) {
  start_items(items);
  while (!running_.empty()) {
    plan_step();
    run_step();
    for (RunningItem& running : running_) {
      if (running.rows == 0 || !running.item->outcome.ok()) continue;
      try {
        deliver(running);
      } catch (const std::bad_alloc&) {
        running.item->outcome = out_of_memory();
      }
    }
    std::erase_if(running_, [](const RunningItem& running) { return running.is_over(); });
  }
}

void Engine::start_items(std::span<StepItem> items) {
  running_.clear();
  try {
    running_.reserve(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      items[i].outcome = check_item(items, i);
      items[i].best.clear();
    }
  } catch (const std::bad_alloc&) {
    for (StepItem& item : items) item.outcome = out_of_memory();
  }
  for (const StepPhase phase : {StepPhase::kDecode, StepPhase::kPrompt}) {
    for (StepItem& item : items) {
      if (item.outcome.ok() && item.options.phase == phase) running_.push_back({.item = &item});
    }
  }
}

// Says how many of its tokens each item has in the next step: as many as fit, with their logits,
// behind those of the items before.
void Engine::plan_step() {
  int64_t rows_left = prefill_chunk_;
  // Layers of several devices work at once on chunks that follow each other: the more of them, the
  // less time some have nothing to do. Experts in the host's memory come once for each chunk.
  const bool follow = options_.prefill_chunk == 0 && home_ == ExpertHome::kDevice &&
                      options_.split == SplitMode::kLayers;
  const auto parts = static_cast<int64_t>(device_->num_parts());
  if (follow && parts > 1)
    rows_left = std::min(rows_left, std::max(rows_left / parts, kPipedRowsLeast));
  int64_t logits_left = logits_.dim(0);
  for (RunningItem& running : running_) {
    const LogitsMode mode = running.item->options.logits;
    running.rows = std::min(running.tokens_left(), rows_left);
    running.logits_rows = 0;
    if (mode == LogitsMode::kAll) {
      running.rows = running.logits_rows = std::min(running.rows, logits_left);
    } else if (mode == LogitsMode::kLast && running.rows == running.tokens_left()) {
      if (logits_left > 0) {
        running.logits_rows = 1;
      } else {
        --running.rows;
      }
    }
    if (running.item->options.stop.stop_requested()) {
      running.item->outcome = Error(ErrorCode::kCancelled, "stopped");
      running.rows = running.logits_rows = 0;
    }
    rows_left -= running.rows;
    logits_left -= running.logits_rows;
  }
}

// Memory may run out anywhere in a step: whoever has tokens in it then has failed.
void Engine::run_step() {
  StepGuard guard(*encoder_);
  Status done;
  try {
    if (const uint64_t bytes = pressure_.bytes_to_release(); bytes > 0) {
      experts_->release_memory(bytes);
    }
    fill_batch();
    if (batch_.rows() > 0) done = forward();
  } catch (const std::bad_alloc&) {
    done = out_of_memory();
  }
  if (done.ok()) {
    end_step();
    if (batch_.rows() > 0) experts_->help().end_step();
    if (batch_.rows() > 0 && networks_ != nullptr) networks_->end_step();
    if (batch_.rows() > 0) guard.has_run();
    return;
  }
  for (RunningItem& running : running_) {
    if (running.rows > 0) running.item->outcome = done;
  }
}

// A sequence is broken from the beginning of a step to its end, so that it stays so however the
// step ends otherwise. Without room it is what it was.
Status Engine::reserve(Sequence& sequence, int64_t rows) {
  make_room(sequence.past_.tokens, static_cast<size_t>(rows));
  sequence.broken_ = true;
  SequenceState& state = *sequence.past_.state;
  Status reserved = state.reserve(state.length() + rows, *encoder_);
  if (!reserved.ok()) sequence.broken_ = false;
  return reserved;
}

// The items that there is memory for; the others have failed.
void Engine::fill_batch() {
  batch_.clear();
  draft_batch_.clear();
  for (RunningItem& running : running_) {
    if (running.rows == 0) continue;
    StepItem& item = *running.item;
    try {
      item.outcome = reserve(*item.sequence, running.rows);
    } catch (const std::bad_alloc&) {
      item.outcome = out_of_memory();
    }
    if (!item.outcome.ok()) {
      running.rows = running.logits_rows = 0;
      continue;
    }
    running.logits_begin = batch_.logits_rows();
    batch_.add(
        *item.sequence->past_.state,
        {.rows = running.rows, .phase = item.options.phase, .logits_rows = running.logits_rows});
    if (spec().draft_layers > 0) add_draft_rows(running);
  }
}

// As early as can be: the first layers compute while rows are on their way.
Status Engine::begin_ngram_rows() {
  if (ngram_rows_ == nullptr) return {};
  texts_.clear();
  for (const RunningItem& running : running_) {
    if (running.rows == 0) continue;
    texts_.push_back({running.item->sequence->tokens(), running.step_tokens()});
  }
  return ngram_rows_->begin_step(texts_);
}

// One write brings all: positions lie behind the ids.
void Engine::write_inputs() {
  host_inputs_.clear();
  const auto put_positions = [&](const StepBatch& batch) {
    for (const StepRows& rows : batch.sequences()) {
      const size_t begin = host_inputs_.size();
      host_inputs_.resize(begin + static_cast<size_t>(rows.rows));
      std::iota(host_inputs_.begin() + static_cast<ptrdiff_t>(begin), host_inputs_.end(),
                static_cast<int32_t>(rows.position));
    }
  };
  for (const RunningItem& running : running_) {
    const std::span<const TokenId> tokens = running.step_tokens();
    host_inputs_.insert(host_inputs_.end(), tokens.begin(), tokens.end());
  }
  put_positions(batch_);
  if (draft_batch_.rows() > 0) {
    for (const RunningItem& running : running_) {
      std::span<const TokenId> tokens = running.step_tokens();
      if (!tokens.empty() && running.item->sequence->length() == 0) tokens = tokens.subspan(1);
      host_inputs_.insert(host_inputs_.end(), tokens.begin(), tokens.end());
    }
    put_positions(draft_batch_);
  }
  encoder_->write(step_inputs_.slice(0, 0, static_cast<int64_t>(host_inputs_.size())),
                  std::as_bytes(std::span(host_inputs_)));
}

Status Engine::forward() {
  const int64_t n = batch_.rows();
  MF_RETURN_IF_ERROR(begin_ngram_rows());
  write_inputs();
  HiddenObserver* observer = nullptr;
  for (const RunningItem& running : running_) {
    if (running.rows > 0 && observer == nullptr) observer = running.item->options.observer;
  }
  const Tensor ids = step_inputs_.slice(0, 0, n);
  const Tensor positions = step_inputs_.slice(0, n, n);
  const int64_t wanted = batch_.logits_rows();
  const Tensor logits = wanted > 0 ? logits_.slice(0, 0, wanted) : Tensor{};
  experts_->begin_step(batch_.sequences(), *encoder_);
  if (networks_ != nullptr) networks_->begin_step(batch_.sequences(), *encoder_);
  LayerSource* layers = layers_.get();
  if (networks_ != nullptr) layers = networks_.get();
  const bool wants_hidden = std::ranges::any_of(
      running_, [](const RunningItem& running) { return running.hidden_rows() > 0; });
  HiddenReader reader(*this, observer);
  if (wants_hidden) observer = &reader;
  const ForwardStep step{*encoder_, ids,      positions,         batch_,
                         *experts_, observer, ngram_rows_.get(), layers};
  MF_RETURN_IF_ERROR(loaded_->model->forward(step, logits));
  MF_RETURN_IF_ERROR(forward_drafts());
  MF_CHECK(reader.has_read() == wants_hidden);
  MF_RETURN_IF_ERROR(reader.status());
  if (wanted > 0) return read_results();
  const EventId recorded = encoder_->submit();
  // The first of several devices goes on with the next tokens while the last has these. A helper's
  // memory is that of one step.
  const bool is_helped = experts_->help().helper() != nullptr;
  if (device_->num_parts() > 1 && !wants_hidden && !is_helped) return {};
  return encoder_->wait(recorded);
}

// `normed` has the rows of all items, one behind another; each item's are read at once.
Status Engine::read_hidden(const Tensor& normed) {
  const int64_t width = spec().hidden_size;
  int64_t wanted = 0;
  for (RunningItem& running : running_) {
    running.hidden_begin = wanted;
    wanted += running.hidden_rows();
  }
  host_hidden_.resize(static_cast<size_t>(wanted * width));
  int64_t end = 0;
  for (const RunningItem& running : running_) {
    end += running.rows;
    const int64_t rows = running.hidden_rows();
    if (rows == 0) continue;
    const auto to = std::span(host_hidden_)
                        .subspan(static_cast<size_t>(running.hidden_begin * width),
                                 static_cast<size_t>(rows * width));
    MF_RETURN_IF_ERROR(
        encoder_->read(std::as_writable_bytes(to), normed.slice(0, end - rows, rows)));
  }
  return {};
}

void Engine::end_step() {
  for (const RunningItem& running : running_) {
    if (running.rows == 0) continue;
    Sequence& sequence = *running.item->sequence;
    const std::span<const TokenId> tokens = running.step_tokens();
    sequence.past_.state->advance(running.rows);
    sequence.past_.tokens.insert(sequence.past_.tokens.end(), tokens.begin(), tokens.end());
    sequence.broken_ = false;
  }
}

void Engine::deliver_hidden(const RunningItem& running) {
  StepItem& item = *running.item;
  const auto rows = static_cast<size_t>(running.hidden_rows());
  if (rows == 0 || !item.hidden_sink) return;
  const auto width = static_cast<size_t>(spec().hidden_size);
  item.outcome = item.hidden_sink(
      item.sequence->length() - static_cast<int64_t>(rows),
      std::span<const float>(host_hidden_)
          .subspan(static_cast<size_t>(running.hidden_begin) * width, rows * width));
}

void Engine::deliver(RunningItem& running) {
  StepItem& item = *running.item;
  deliver_hidden(running);  // while tokens_left() is what it was in the step
  running.evaluated += running.rows;
  if (!item.outcome.ok()) return;
  if (running.logits_rows > 0 && item.sink && item.options.best.count == 0) {
    const auto width = static_cast<size_t>(spec().vocab_size);
    const auto begin = static_cast<size_t>(running.logits_begin) * width;
    item.outcome = item.sink(item.sequence->length() - running.logits_rows,
                             std::span<const float>(host_logits_)
                                 .subspan(begin, static_cast<size_t>(running.logits_rows) * width));
    if (!item.outcome.ok()) return;
  }
  const bool goes_on = !item.options.progress || item.options.progress(running.evaluated);
  if (!goes_on && running.tokens_left() > 0) {
    item.outcome = Error(ErrorCode::kCancelled, "stopped");
  }
}

}  // namespace moeflux
