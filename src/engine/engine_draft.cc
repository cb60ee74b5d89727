// The model's own layer that predicts further tokens: its rows of a step, which keep its keys those
// of the text, and drafts by it.
#include <algorithm>
#include <array>

#include "engine/engine.h"
#include "engine/step_guard.h"

namespace moeflux {
namespace {

/// Whether a step has left there what the layers gave for the token at `position`.
bool holds_hidden(const SequenceState& state, LayerId layer, int64_t position) {
  const std::vector<StateTensor>& tensors = state.spec(layer).tensors;
  const auto pages = std::ssize(state.pages(layer, tensors.size() - 1));
  const bool is_ring = tensors.back().window > 0;
  return pages > 0 && (is_ring || position < pages * SequenceState::kPageTokens);
}

}  // namespace

// Each token of the step with what the layers gave for the token before it, where there is one.
void Engine::add_draft_rows(const RunningItem& running) {
  const SequenceState& state = *running.item->sequence->past_.state;
  const int64_t position = std::max<int64_t>(0, state.length() - 1);
  const int64_t rows = running.rows - (state.length() == 0 ? 1 : 0);
  if (rows == 0) return;
  draft_batch_.add(state,
                   {.rows = rows, .phase = running.item->options.phase, .position = position});
}

Status Engine::forward_drafts() {
  const int64_t n = draft_batch_.rows();
  if (n == 0) return {};
  experts_->begin_draft(draft_batch_.sequences());
  const int64_t begin = 2 * batch_.rows();
  const ForwardStep step{.encoder = *encoder_,
                         .token_ids = step_inputs_.slice(0, begin, n),
                         .positions = step_inputs_.slice(0, begin + n, n),
                         .batch = draft_batch_,
                         .experts = *experts_,
                         .layers = layers_.get()};
  return loaded_->model->draft(step, {}, {});
}

Result<std::vector<TokenId>> Engine::draft(Sequence& sequence, const DraftRequest& request) {
  MF_CHECK(spec().draft_layers > 0 && request.ahead >= 0);
  std::vector<TokenId> drafts;
  const int64_t first = sequence.length() + request.ahead - 1;
  // The token stands behind `first`, and the drafts behind it.
  const int64_t count = std::min({request.count, prefill_chunk_, plan_.context_length - first - 2});
  if (first < 0 || count <= 0 || !sequence.check_whole().ok()) return drafts;
  SequenceState& state = *sequence.past_.state;
  if (!holds_hidden(state, draft_layer(), first)) return drafts;
  StepGuard guard(*encoder_);
  TokenId token = request.token;
  try {
    if (!state.reserve_rows(draft_layer(), first, first + count, *encoder_).ok()) return drafts;
    for (int64_t i = 0; i < count; ++i) {
      const DraftRow row{.token = token, .position = first + i, .is_first = i == 0};
      MF_ASSIGN_OR_RETURN(token, draft_row(state, row, request.sink));
      drafts.push_back(token);
    }
  } catch (const std::bad_alloc&) {
    return drafts;
  }
  guard.has_run();
  return drafts;
}

Result<TokenId> Engine::draft_row(const SequenceState& state, const DraftRow& row,
                                  const LogitsSink& sink) {
  draft_batch_.clear();
  draft_batch_.add(state, {.rows = 1, .phase = StepPhase::kDecode, .position = row.position});
  const std::array<int32_t, 2> inputs = {row.token, static_cast<int32_t>(row.position)};
  encoder_->write(step_inputs_.slice(0, 0, 2), std::as_bytes(std::span(inputs)));
  experts_->begin_draft(draft_batch_.sequences());
  const ForwardStep step{.encoder = *encoder_,
                         .token_ids = step_inputs_.slice(0, 0, 1),
                         .positions = step_inputs_.slice(0, 1, 1),
                         .batch = draft_batch_,
                         .experts = *experts_,
                         .layers = layers_.get()};
  const Tensor hidden = row.is_first ? Tensor{} : draft_hidden_;
  MF_RETURN_IF_ERROR(loaded_->model->draft(step, {.hidden = hidden, .out = draft_hidden_},
                                           logits_.slice(0, 0, 1)));
  MF_RETURN_IF_ERROR(
      choose_best({.count = 1, .of = static_cast<int32_t>(spec().vocab_size)}, 0, 1));
  if (sink) {
    MF_ASSIGN_OR_RETURN(const std::span<const float> logits, last_logits());
    MF_RETURN_IF_ERROR(sink(row.position + 2, logits));
  }
  return static_cast<TokenId>(host_best_words_[1]);
}

}  // namespace moeflux
