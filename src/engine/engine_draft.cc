// The model's own layer that predicts further tokens: its rows of a step, which keep its keys those
// of the text, and drafts by it.
#include <algorithm>
#include <bit>
#include <utility>

#include "backend/ops/copy.h"
#include "engine/engine.h"
#include "engine/step_guard.h"
#include "sampling/candidates.h"

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

// The token stands behind `first`, and the drafts behind it. None where there is no room.
std::optional<Engine::DraftingItem> Engine::begin_draft(DraftItem& item) {
  Sequence& sequence = *item.sequence;
  MF_CHECK(item.request.ahead >= 0);
  DraftingItem drafting{.item = &item, .first = sequence.length() + item.request.ahead - 1};
  drafting.count =
      std::min({item.request.count, prefill_chunk_, plan_.context_length - drafting.first - 2});
  if (drafting.first < 0 || drafting.count <= 0 || !sequence.check_whole().ok()) return {};
  SequenceState& state = *sequence.past_.state;
  if (!holds_hidden(state, draft_layer(), drafting.first)) return {};
  const int64_t end = drafting.first + drafting.count;
  if (!state.reserve_rows(draft_layer(), drafting.first, end, *encoder_).ok()) return {};
  return drafting;
}

Status Engine::draft(std::span<DraftItem> items) {
  MF_CHECK(spec().draft_layers > 0);
  const auto most = static_cast<size_t>(draft_hidden_.dim(0));
  for (; !items.empty(); items = items.subspan(std::min(most, items.size()))) {
    MF_RETURN_IF_ERROR(draft_together(items.first(std::min(most, items.size()))));
  }
  return {};
}

Result<std::vector<TokenId>> Engine::draft(Sequence& sequence, const DraftRequest& request) {
  DraftItem item{.sequence = &sequence, .request = request};
  MF_RETURN_IF_ERROR(draft(std::span(&item, 1)));
  return std::move(item.tokens);
}

// A round for each token, of those items that want one more. Where memory runs out, what there is
// has to do.
Status Engine::draft_together(std::span<DraftItem> items) {
  StepGuard guard(*encoder_);
  try {
    std::vector<DraftingItem> drafting;
    for (DraftItem& item : items) {
      if (const auto begun = begin_draft(item)) drafting.push_back(*begun);
    }
    for (int64_t round = 0; !drafting.empty(); ++round) {
      MF_RETURN_IF_ERROR(draft_rows(drafting, round));
      end_drafts(drafting, round + 1);
    }
  } catch (const std::bad_alloc&) {
    return {};
  }
  guard.has_run();
  return {};
}

Status Engine::draft_rows(std::span<DraftingItem> drafting, int64_t round) {
  const auto n = static_cast<int64_t>(drafting.size());
  draft_batch_.clear();
  host_inputs_.clear();
  for (const DraftingItem& one : drafting) {
    const DraftItem& item = *one.item;
    draft_batch_.add(*item.sequence->past_.state,
                     {.rows = 1, .phase = StepPhase::kDecode, .position = one.first + round});
    host_inputs_.push_back(round == 0 ? item.request.token : item.tokens.back());
  }
  for (const DraftingItem& one : drafting) {
    host_inputs_.push_back(static_cast<int32_t>(one.first + round));
  }
  encoder_->write(step_inputs_.slice(0, 0, 2 * n), std::as_bytes(std::span(host_inputs_)));
  experts_->begin_draft(draft_batch_.sequences());
  const ForwardStep step{.encoder = *encoder_,
                         .token_ids = step_inputs_.slice(0, 0, n),
                         .positions = step_inputs_.slice(0, n, n),
                         .batch = draft_batch_,
                         .experts = *experts_,
                         .layers = layers_.get()};
  const Tensor handed_on = draft_hidden_.slice(0, 0, n);
  MF_RETURN_IF_ERROR(
      loaded_->model->draft(step, {.hidden = round == 0 ? Tensor{} : handed_on, .out = handed_on},
                            logits_.slice(0, 0, n)));
  const auto of = static_cast<int32_t>(spec().vocab_size);
  const BestLogits best{.count = std::min(kConfidenceTokens, of), .of = of};
  MF_RETURN_IF_ERROR(choose_best(best, 0, n));
  const auto k = static_cast<size_t>(best.count);
  std::vector<TokenLogit> likeliest(k);
  for (size_t i = 0; i < drafting.size(); ++i) {
    DraftingItem& one = drafting[i];
    for (size_t j = 0; j < k; ++j) {
      likeliest[j] = {.logit = std::bit_cast<float>(host_best_words_[i * k + j]),
                      .id = static_cast<TokenId>(host_best_words_[(drafting.size() + i) * k + j])};
    }
    const float confidence = confidence_of(likeliest);
    one.item->tokens.push_back(likeliest.front().id);
    one.item->confidences.push_back(confidence);
    one.confidence *= confidence;
  }
  return tell_drafts(drafting, round);
}

// The rows that a round hands on are the next one's: the last takes the place of one that ends.
void Engine::end_drafts(std::vector<DraftingItem>& drafting, int64_t rounds) {
  for (size_t i = drafting.size(); i-- > 0;) {
    const DraftingItem& one = drafting[i];
    const bool is_likely =
        one.confidence > 0.0f && one.confidence >= one.item->request.confidence_min;
    if (one.count > rounds && is_likely) continue;
    const size_t last = drafting.size() - 1;
    const auto row = [&](size_t at) { return draft_hidden_.slice(0, static_cast<int64_t>(at), 1); };
    if (i < last) encoder_->run(ops::Copy{row(i), row(last)});
    drafting[i] = drafting[last];
    drafting.pop_back();
  }
}

// Reading logits ends the view of the best.
Status Engine::tell_drafts(std::span<DraftingItem> drafting, int64_t round) {
  for (size_t i = 0; i < drafting.size(); ++i) {
    const LogitsSink& sink = drafting[i].item->request.sink;
    if (!sink) continue;
    MF_ASSIGN_OR_RETURN(const std::span<const float> logits, last_logits(static_cast<int64_t>(i)));
    MF_RETURN_IF_ERROR(sink(drafting[i].first + round + 2, logits));
  }
  return {};
}

}  // namespace moeflux
