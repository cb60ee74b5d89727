// The scheduler's steps: who begins and gives way, what a step has of each text, and what it
// brings.
#include <algorithm>
#include <bit>
#include <chrono>
#include <iterator>
#include <utility>

#include "schedule/scheduler_loop.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

// A step waits so long at most for masks of quick texts: a quarter of what the last step took.
constexpr std::chrono::microseconds kMaskWaitMin{100};
constexpr std::chrono::microseconds kMaskWaitMax{5000};
// A mask of all that the limits allow takes a second of a processor. Rows of ambiguous grammars are
// not bounded by them, and may have to give way to others.
constexpr std::chrono::seconds kMaskMax{20};
// Less of a common beginning is not worth a wait.
constexpr int64_t kCommonTokensMin = 64;

}  // namespace

StepBookOptions Scheduler::Loop::book_options(const OpenModel& model,
                                              const SchedulerOptions& options) {
  const MemoryPlan& plan = model.engine->memory_plan();
  StepBookOptions book{.sharing = options.sharing,
                       .experts_fit = model.counters().expert_capacity_bytes >= plan.experts_bytes};
  // A step reads all that is streamed, however many tokens it has.
  if (plan.streamed_bytes > 0) book.piece_min = model.engine->prefill_chunk();
  return book;
}

Scheduler::Loop::TextPtr Scheduler::Loop::find(TextRequestId id) const {
  const auto text =
      std::ranges::find_if(active_, [id](const TextPtr& one) { return one->id() == id; });
  return text == active_.end() ? nullptr : *text;
}

// --- Admission ---

// Snapshots take room where states do.
AdmissionView Scheduler::Loop::admission_view() const {
  AdmissionView view;
  view.now_us = microseconds(Clock::now());
  const bool shares_memory = !engine_.state_memory().is_bounded();
  for (const TextPtr& text : active_) {
    if (text->preemption().is_waiting) {
      if (text->is_parked() || text->waits_for_mask()) continue;
      view.waiting.push_back({.id = text->id(),
                              .state_bytes = state_bytes(*text),
                              .saved_bytes = shares_memory ? text->preemption().snapshot.size() : 0,
                              .since_us = microseconds(text->since())});
      continue;
    }
    const bool is_saved = shares_memory && text->state() != nullptr;
    view.active.push_back(
        {.id = text->id(),
         .is_parked = text->is_parked(),
         .state_bytes = state_bytes(*text),
         .saved_bytes = is_saved ? engine_.state_bytes(text->state()->length()) : 0,
         .since_us = microseconds(text->since())});
  }
  std::ranges::stable_sort(view.active, {}, &ActiveView::since_us);
  {
    const std::lock_guard lock(mutex_);
    for (const TextPtr& text : queue_) {
      view.waiting.push_back({.id = text->id(),
                              .state_bytes = state_bytes(*text),
                              .since_us = microseconds(text->since())});
    }
  }
  std::ranges::stable_sort(view.waiting, {}, &WaitingView::since_us);
  return view;
}

// Beside the texts that run; kept states give way. Where somebody waits for memory, nobody begins.
void Scheduler::Loop::admit() {
  if (waits_for_memory()) return;
  const AdmissionPlan plan = plan_admission(limits_, admission_view());
  if (!preempt(plan.preempt)) return;
  for (const TextRequestId id : plan.admit) {
    TextPtr text = find(id);
    if (text == nullptr) {
      const std::lock_guard lock(mutex_);
      const auto waiting =
          std::ranges::find_if(queue_, [id](const TextPtr& one) { return one->id() == id; });
      if (waiting == queue_.end()) continue;  // it was cancelled meanwhile
      text = std::move(*waiting);
      queue_.erase(waiting);
      queue_changed_ = true;
      active_.push_back(text);
    }
    admit(text);
  }
}

void Scheduler::Loop::admit(const TextPtr& text) {
  book_.add(text->id());
  note_beginning(*text);
  const bool goes_on = text->preemption().is_waiting;
  text->admit();
  if (goes_on) return publish_state(*text);
  const std::lock_guard lock(mutex_);
  slots_[text->id()] = {.id = text->id(),
                        .prompt_tokens = text->request().prompt_length(),
                        .tokens_max = text->request().tokens_max,
                        .client = text->request().client};
}

// False where the turn for it was not to be had.
bool Scheduler::Loop::preempt(const std::vector<TextRequestId>& ids) {
  if (ids.empty()) return true;
  const Turn turn(model_, {caller_}, -1);
  if (turn.state() != Turn::State::kRunning) return false;
  for (const TextRequestId id : ids) {
    const TextPtr text = find(id);
    book_.remove(id);
    text->preempt();
    publish_state(*text);
    const std::lock_guard lock(mutex_);
    ++counters_.preemptions;
  }
  return true;
}

// Finds the request that evaluates most of this one's beginning, if this one could then begin from
// there.
void Scheduler::Loop::note_beginning(const RunningText& text) {
  const std::span<const TokenId> wanted = reusable(text);
  Beginning best;
  for (const TextPtr& other : active_) {
    if (other.get() == &text || !other->is_in_prompt() || other->preemption().is_waiting) continue;
    if (other->request().client != text.request().client) continue;
    const int64_t whole =
        other->request().prompt_length() - 1;  // up to where it leaves a checkpoint
    const bool forgets =
        engine_.loaded().shortest_truncation(other->request().prompt_length()) == 0;
    const int64_t common = common_tokens(other->tokens(), wanted);
    const bool is_enough = common >= whole || (forgets && common >= kCommonTokensMin);
    if (is_enough && common > best.tokens) best = {.of = other->id(), .tokens = common};
  }
  if (best.tokens > 0) beginnings_[text.id()] = best;
}

std::optional<TextRequestId> Scheduler::Loop::evaluates_beginning(const RunningText& text) {
  const auto found = beginnings_.find(text.id());
  if (found == beginnings_.end()) return std::nullopt;
  const Beginning beginning = found->second;
  const TextPtr other = find(beginning.of);
  const bool is_to_come = text.state() == nullptr && other != nullptr && is_ready(*other) &&
                          other->is_in_prompt() &&
                          other->work().processed_tokens < beginning.tokens;
  if (is_to_come) return beginning.of;
  beginnings_.erase(found);
  return std::nullopt;
}

// --- Masks ---

// A mask that has taken too long ends, and its request with it.
void Scheduler::Loop::settle_masks() {
  wait_for_quick_masks();
  std::vector<TextPtr> masked;  // a copy: texts that end leave
  std::ranges::copy_if(active_, std::back_inserter(masked),
                       [](const TextPtr& text) { return text->masks().job() != nullptr; });
  for (const TextPtr& text : masked) {
    if (!text->masks().job()->is_done) {
      if (Clock::now() - text->masks().job()->since > kMaskMax) text->masks().stop();
      continue;
    }
    const Status settled = text->settle();
    if (!settled.ok()) {
      fail(text, settled.error());
    } else if (text->end()) {
      finish(text);
    } else {
      publish(*text);
    }
  }
}

// Masks of quick requests are worth a wait that is short beside a step: these requests take part in
// the next one, then.
void Scheduler::Loop::wait_for_quick_masks() {
  std::vector<std::shared_ptr<const MaskJob>> quick;
  bool others_are_ready = false;
  for (const TextPtr& text : active_) {
    const bool waits =
        text->waits_for_mask() && text->masks().job()->pace == MaskPace::Kind::kQuick;
    if (waits) quick.push_back(text->masks().job());
    others_are_ready = others_are_ready || is_ready(*text);
  }
  if (quick.empty() || !others_are_ready) return;
  masks_.wait(quick, Clock::now() + std::clamp(last_step_ / 4, kMaskWaitMin, kMaskWaitMax));
}

// --- A step ---

StepView Scheduler::Loop::step_view() {
  StepView view;
  view.now_us = microseconds(Clock::now());
  for (const TextPtr& text : active_) {
    if (!is_ready(*text)) continue;
    view.texts.push_back(text->view());
    view.texts.back().behind = evaluates_beginning(*text);
  }
  book_.complete(view);
  return view;
}

// False when nobody can go on.
bool Scheduler::Loop::step() {
  const StepPlan plan = plan_step(limits_, step_view());
  if (plan.parts.empty()) return false;
  {
    const std::lock_guard lock(mutex_);
    is_in_step_ = true;
  }
  std::vector<Part> parts;
  {
    const Turn turn(model_, {caller_}, -1);
    if (turn.state() == Turn::State::kRunning) run_step(plan, parts);
  }
  {
    const std::lock_guard lock(mutex_);
    is_in_step_ = false;
  }
  tell_news();
  end_parts(parts);
  return true;
}

void Scheduler::Loop::trace_routes(std::weak_ptr<RouteObserver> observer) {
  const std::lock_guard lock(mutex_);
  route_trace_ = std::move(observer);
}

std::shared_ptr<RouteObserver> Scheduler::Loop::route_trace() const {
  const std::lock_guard lock(mutex_);
  return route_trace_.lock();
}

void Scheduler::Loop::run_step(const StepPlan& plan, std::vector<Part>& parts) {
  const Clock::time_point begin_time = Clock::now();
  const ExpertStats experts_before = engine_.expert_stats();
  std::vector<SessionStep> steps = begin_parts(plan, parts);
  RouteTap tap(engine_, route_trace());
  size_t at = 0;
  for (const Part& part : parts) {
    if (part.tokens == 0) continue;
    if (steps[at++].phase == StepPhase::kDecode) tap.add_decoded(part.text->request().routes);
  }
  tap.begin();
  const Clock::time_point evaluation = Clock::now();
  Session::eval_batch(steps);
  const std::chrono::duration<double> seconds = Clock::now() - evaluation;
  const ExpertStats used = engine_.expert_stats() - experts_before;
  const bool is_whole =
      std::ranges::all_of(steps, [](const SessionStep& step) { return step.outcome.ok(); });
  tap.end(is_whole, {.bus_bytes = used.bus_bytes,
                     .stall_us = used.stall_us,
                     .step_us = static_cast<uint64_t>(seconds.count() * 1e6)});
  for (const Part& part : parts) part.text->add_experts(used);
  if (is_whole) count_decode(steps, used.hits + used.misses, seconds.count());
  take_parts(steps, seconds.count(), parts);
  const auto elapsed =
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin_time);
  last_step_ = elapsed;
  count_step(plan, parts,
             {.elapsed_us = elapsed.count(), .stall_us = static_cast<int64_t>(used.stall_us)});
}

// The parts with as many rows as drafts may make of them. All fit into one step of the engine,
// where logits can be looked at in place: parts that do not are left for the next step, which comes
// soon.
std::vector<StepPart> Scheduler::Loop::with_drafts(const StepPlan& plan) const {
  std::vector<StepPart> parts = plan.parts;
  int64_t rows = limits_.rows_max;
  int64_t answers = limits_.answers_max - static_cast<int64_t>(parts.size());
  const auto least = [&](const StepPart& part) {
    return part.is_prompt ? 1 : find(part.id)->rows_needed();
  };
  size_t taken = 0;
  for (; taken < parts.size(); ++taken) {
    if (taken > 0 && least(parts[taken]) > rows) break;
    rows -= least(parts[taken]);
  }
  parts.resize(taken);
  for (StepPart& part : parts) {
    if (!part.is_prompt) continue;
    part.tokens = 1 + std::clamp<int64_t>(part.tokens - 1, 0, std::max<int64_t>(0, rows));
    rows -= part.tokens - 1;
  }
  for (StepPart& part : parts) {
    if (part.is_prompt) continue;
    const TextPtr text = find(part.id);
    const int64_t needed = text->rows_needed();
    // With drafts, logits of all its rows are wanted. A client that asked for a token's routes gets
    // those of a step of its own, whatever a draft would have chosen.
    const int64_t most = text->request().routes != nullptr ? 0 : model_->drafts.tokens_max;
    const int64_t more = std::clamp<int64_t>(std::min(rows, answers - needed + 1), 0, most);
    part.tokens = needed + more;
    rows -= more;
    if (more > 0) answers -= part.tokens - 1;
  }
  return parts;
}

// The sources of all texts are asked in one call, whose time each of them sees.
void Scheduler::Loop::find_drafts(const std::vector<StepPart>& planned,
                                  const std::vector<Part>& parts) {
  std::vector<DraftSource::Ask> asks;
  std::vector<Decoding*> asking;
  for (size_t i = 0; i < parts.size(); ++i) {
    const TextPtr& text = parts[i].text;
    if (!parts[i].done.ok() || text->end()) continue;
    Decoding* const decoding = text->drafting();
    if (decoding == nullptr) continue;
    if (auto ask = decoding->ask(planned[i].tokens)) {
      asks.push_back(std::move(*ask));
      asking.push_back(decoding);
    }
  }
  if (asks.empty()) return;
  const Clock::time_point begin = Clock::now();
  asks.front().source.draft_all(asks);
  const std::chrono::duration<double> seconds = Clock::now() - begin;
  for (size_t i = 0; i < asks.size(); ++i) {
    asking[i]->answer(std::move(asks[i].draft), seconds.count());
  }
}

// A step for every part that has tokens, in their order.
std::vector<SessionStep> Scheduler::Loop::begin_parts(const StepPlan& plan,
                                                      std::vector<Part>& parts) {
  const std::vector<StepPart> planned = with_drafts(plan);
  for (const StepPart& one : planned) {
    Part& part = parts.emplace_back();
    part.text = find(one.id);
    part.is_prompt = one.is_prompt;
    if (part.text->state() == nullptr) {
      make_room(*part.text);
      part.done = begin(*part.text);
    }
  }
  find_drafts(planned, parts);
  std::vector<SessionStep> steps;
  for (size_t i = 0; i < parts.size(); ++i) {
    Part& part = parts[i];
    if (!part.done.ok() || part.text->end()) continue;
    steps.push_back(part.text->part(planned[i].tokens));
    part.tokens = static_cast<int64_t>(steps.back().tokens.size());
  }
  return steps;
}

// A step that failed in the middle has broken the state of everybody in it, and says nothing of who
// is to blame: each is evaluated again by itself.
void Scheduler::Loop::take_parts(std::vector<SessionStep>& steps, double seconds,
                                 std::vector<Part>& parts) {
  const auto has_failed = [](const SessionStep& step) {
    return !step.outcome.ok() && step.outcome.error().code() != ErrorCode::kCancelled;
  };
  const bool all_failed = steps.size() > 1 && std::ranges::all_of(steps, [&](const auto& step) {
                            return !step.outcome.ok();
                          });
  size_t at = 0;
  for (Part& part : parts) {
    if (part.tokens == 0) continue;
    const SessionStep& step = steps[at++];
    const bool is_memory_of_one = has_failed(step) &&
                                  step.outcome.error().code() == ErrorCode::kResourceExhausted &&
                                  !all_failed;
    if (steps.size() > 1 && has_failed(step) && !is_memory_of_one) {
      part.text->go_on_alone();
      part.has_lost_state = true;
      continue;
    }
    part.done = part.text->take(step, seconds);
    publish(*part.text);
  }
}

void Scheduler::Loop::count_step(const StepPlan& plan, const std::vector<Part>& parts,
                                 const StepMeasure& measure) {
  StepPlan done{.owner = plan.owner,
                .begins_slice = plan.begins_slice,
                .is_alone = plan.is_alone,
                .parts = {}};
  uint64_t tokens = 0;
  for (const Part& part : parts) {
    if (part.tokens == 0) continue;
    done.parts.push_back(
        {.id = part.text->id(), .tokens = part.tokens, .is_prompt = part.is_prompt});
    tokens += static_cast<uint64_t>(part.tokens);
  }
  if (done.parts.empty()) return;
  book_.note(done, measure);
  const std::lock_guard lock(mutex_);
  ++counters_.steps;
  counters_.step_tokens += tokens;
  counters_.step_texts += done.parts.size();
  const auto bucket = static_cast<size_t>(std::bit_width(done.parts.size() - 1));
  ++counters_.steps_by_texts[std::min(bucket, counters_.steps_by_texts.size() - 1)];
}

// Holds a step of decode against what it had to move. Prompts are bound by arithmetic.
void Scheduler::Loop::count_decode(std::span<const SessionStep> steps, uint64_t experts,
                                   double seconds) {
  const bool is_decode = std::ranges::all_of(
      steps, [](const SessionStep& step) { return step.phase == StepPhase::kDecode; });
  if (steps.empty() || !is_decode) return;
  std::vector<int64_t> lengths;
  int64_t rows = 0;
  for (const SessionStep& step : steps) {
    lengths.push_back(step.session->position());
    rows += static_cast<int64_t>(step.tokens.size());
  }
  const double bytes = traffic_.decode_bytes(lengths, rows, experts);
  const std::lock_guard lock(mutex_);
  counters_.decode_bytes += static_cast<uint64_t>(bytes);
  counters_.decode_step_seconds += seconds;
}

void Scheduler::Loop::end_parts(const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    if (part.has_lost_state) continue;
    if (!part.done.ok()) {
      fail(part.text, part.done.error());
    } else if (part.text->end()) {
      finish(part.text);
    }
  }
}

}  // namespace moeflux
