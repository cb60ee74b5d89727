// Steps of many sequences in moeflux.h.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/format.h"
#include "library/options.h"
#include "library/outcome.h"

namespace moeflux {
namespace {

Result<std::vector<mf_batch_item>> read_items(const mf_batch_item* items, size_t count) {
  if (items == nullptr) return null_argument("items");
  if (count == 0) return make_error(ErrorCode::kInvalidArgument, "no items to evaluate");
  return read_structs("mf_batch_item", items, count);
}

Outcome check(const OpenModel& open, const mf_batch_item& item, const Session* session) {
  if (session == nullptr) return null_argument("sequence");
  if (item.tokens == nullptr && item.count > 0) return null_argument("tokens");
  if (session->model().get() != &open) {
    return make_error(ErrorCode::kInvalidArgument, "the sequence is another model's");
  }
  const auto wanted = static_cast<size_t>(open.engine->spec().vocab_size);
  if (item.logits == nullptr || item.logits_count == wanted) return {};
  const Error error = make_error(ErrorCode::kInvalidArgument, "logits_count is {}, expected {}",
                                 item.logits_count, wanted);
  return item.logits_count < wanted ? Outcome(MF_ERROR_BUFFER_TOO_SMALL, error.message())
                                    : Outcome(error);
}

/// How each item ended.
std::vector<Outcome> eval_batch(const OpenModel& open, const std::vector<mf_batch_item>& items,
                                const std::vector<std::shared_ptr<Session>>& sessions,
                                const Turn& turn) {
  std::vector<Outcome> outcomes;
  std::vector<SessionStep> steps;
  std::vector<size_t> whose;  // item a step is
  for (size_t i = 0; i < items.size(); ++i) {
    const mf_batch_item& item = items[i];
    outcomes.push_back(check(open, item, sessions[i].get()));
    if (outcomes.back().code != MF_OK) continue;
    const Result<StepPhase> phase = step_phase(item.phase, item.count);
    if (!phase.ok()) {
      outcomes.back() = phase.error();
      continue;
    }
    steps.push_back({.session = sessions[i],
                     .tokens = {item.tokens, item.count},
                     .phase = *phase,
                     .stop = turn.stop_token(i),
                     .may_abort = true});
    whose.push_back(i);
  }
  Session::eval_batch(steps);
  for (size_t k = 0; k < steps.size(); ++k) {
    const mf_batch_item& item = items[whose[k]];
    outcomes[whose[k]] = steps[k].outcome;
    if (!steps[k].outcome.ok() || item.logits == nullptr) continue;
    const Result<std::span<const float>> last = steps[k].session->logits();
    if (last.ok()) {
      std::ranges::copy(*last, item.logits);
    } else {
      outcomes[whose[k]] = last.error();
    }
  }
  return outcomes;
}

}  // namespace
}  // namespace moeflux

using moeflux::guarded;
using moeflux::null_argument;
using moeflux::Outcome;
using moeflux::Turn;

mf_code mf_model_eval_batch(mf_model* model, const mf_batch_item* items, size_t count,
                            mf_error* results, mf_error* error) noexcept {
  mf_error whole;  // of the call as such
  bool has_results = false;
  const mf_code code = guarded(&whole, [&]() -> Outcome {
    if (model == nullptr) return null_argument("model");
    const std::shared_ptr<moeflux::OpenModel> open = model->open;  // the handle may be closed
    MF_ASSIGN_OR_RETURN(const std::vector<mf_batch_item> read, moeflux::read_items(items, count));
    std::vector<std::shared_ptr<moeflux::Session>> sessions;
    for (const mf_batch_item& item : read) {
      sessions.push_back(item.sequence == nullptr ? nullptr : item.sequence->session);
    }
    const Turn turn(open, sessions, open->turn_timeout_ms);
    if (turn.state() == Turn::State::kBusy) return moeflux::busy(open->turn_timeout_ms);
    if (turn.state() == Turn::State::kCancelled) return moeflux::cancelled_waiting();
    const std::vector<Outcome> outcomes = moeflux::eval_batch(*open, read, sessions, turn);
    Outcome first;
    for (size_t i = 0; i < count; ++i) {
      if (results != nullptr) report(outcomes[i], &results[i]);
      if (first.code == MF_OK) first = outcomes[i];
    }
    has_results = true;
    return first;
  });
  if (!has_results && results != nullptr && items != nullptr) {
    for (size_t i = 0; i < count; ++i) moeflux::report(code, whole.message, &results[i]);
  }
  return moeflux::report(code, whole.message, error);
}
