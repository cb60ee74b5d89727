#include "schedule/scheduler_loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/format.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

// The tokens that a request without a limit is planned to need beyond its prompt. One that goes on
// longer takes memory that ended texts lose, and then the expert cache.
constexpr int64_t kUnlimitedTokens = 1024;
constexpr size_t kStateBytesKnown = 4096;  // lengths
// How often somebody who waits for room looks for it while nobody computes.
constexpr std::chrono::milliseconds kRecheckMin{10};
constexpr std::chrono::milliseconds kRecheckMax{1000};
// Beginnings that two texts share by chance are no place to come back to.
constexpr int64_t kBranchTokensMin = 64;

StepLimits step_limits(const Engine& engine, const SchedulerOptions& options) {
  const auto microseconds = [](std::chrono::milliseconds time) {
    return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  };
  StepLimits limits{.active_max = options.active_max,
                    .state_bytes_max = options.state_bytes_max > 0 ? options.state_bytes_max
                                                                   : engine.state_room_bytes(),
                    .rows_max = engine.prefill_chunk(),
                    .answers_max = logits_rows_max(engine.spec(), engine.prefill_chunk()),
                    .slice_us = microseconds(options.slice_time),
                    .patience_us = microseconds(options.patience)};
  for (const LayerSpec& layer : engine.spec().layers) {
    if (layer.moe.num_experts == 0) continue;
    limits.sharing_tokens = std::max<int64_t>(
        1, layer.moe.num_experts / std::max<int64_t>(1, layer.moe.experts_per_token));
  }
  return limits;
}

ActiveText::State state_of(const RunningText& text) {
  if (text.preemption().is_waiting) return ActiveText::State::kPreempted;
  if (text.is_parked()) return ActiveText::State::kParked;
  return text.is_in_prompt() ? ActiveText::State::kPrompt : ActiveText::State::kText;
}

int64_t kept_tokens_max(const SchedulerOptions& options, const Engine& engine) {
  return options.kept_tokens_max >= 0 ? options.kept_tokens_max
                                      : engine.memory_plan().context_length;
}

}  // namespace

Scheduler::Loop::Loop(std::shared_ptr<OpenModel> model, std::shared_ptr<Session> caller,
                      const SchedulerOptions& options, const StepTraffic& traffic)
    : model_(std::move(model)),
      engine_(*model_->engine),
      caller_(std::move(caller)),
      options_(options),
      traffic_(traffic),
      limits_(step_limits(engine_, options_)),
      book_(book_options(*model_, options_)),
      kept_(kept_tokens_max(options, engine_)),
      masks_([this] {
        {
          const std::lock_guard lock(mutex_);
          news_ = true;
        }
        has_news_.notify_one();
      }),
      thread_([this] { run(); }) {}

Scheduler::Loop::~Loop() {
  {
    const std::lock_guard lock(mutex_);
    is_draining_ = is_stopping_ = true;
    for (const TextPtr& text : queue_) dismissed_.push_back(text);
    queue_.clear();
    for (const TextPtr& text : active_) text->signals().cancel();
    if (is_in_step_) caller_->cancel();
    news_ = true;
  }
  has_news_.notify_one();
  thread_.join();
}

// --- Doors, for any thread ---

Status Scheduler::Loop::check(const TextRequest& request) const {
  const int64_t vocab_size = engine_.spec().vocab_size;
  if (request.prompt.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the prompt is empty, expected a token at least");
  }
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    if (request.prompt[i] >= 0 && request.prompt[i] < vocab_size) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "token {} at position {} is outside the vocabulary of {}", request.prompt[i],
                      i, vocab_size);
  }
  if (request.top_logprobs > kTopLogprobsMax) {
    return make_error(ErrorCode::kInvalidArgument, "top_logprobs is {}, expected at most {}",
                      request.top_logprobs, kTopLogprobsMax);
  }
  const int64_t context = engine_.memory_plan().context_length;
  const int64_t more = std::max<int64_t>(0, request.tokens_max);
  if (more > context - request.prompt_length()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} tokens of prompt and {} to follow do not fit the context of {} (see "
                      "--ctx-size)",
                      request.prompt_length(), more, context);
  }
  return check_sampler(request.sampler, vocab_size);
}

Result<TextRequestId> Scheduler::Loop::submit(TextRequest request,
                                              std::shared_ptr<TextReceiver> receiver) {
  MF_RETURN_IF_ERROR(check(request));
  TextRequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (is_draining_) {
      return make_error(ErrorCode::kFailedPrecondition, "no more requests are taken");
    }
    const auto taken = static_cast<int64_t>(queue_.size() + active_.size());
    const int64_t taken_max = int64_t{options_.queue_max} + options_.active_max;
    if (!request.is_further && taken >= taken_max) {
      return make_error(ErrorCode::kResourceExhausted,
                        "{} requests run and {} wait, expected at most {} that wait",
                        active_.size(), queue_.size(), options_.queue_max);
    }
    id = ++last_id_;
    queue_.push_back(std::make_shared<RunningText>(id, std::move(request), std::move(receiver)));
    is_idle_ = false;
    news_ = queue_changed_ = true;
  }
  has_news_.notify_one();
  return id;
}

void Scheduler::Loop::cancel(TextRequestId id) {
  {
    const std::lock_guard lock(mutex_);
    const auto of_id = [id](const TextPtr& text) { return text->id() == id; };
    const auto waiting = std::ranges::find_if(queue_, of_id);
    if (waiting != queue_.end()) {
      dismissed_.push_back(std::move(*waiting));
      queue_.erase(waiting);
      queue_changed_ = true;
    }
    const auto active = std::ranges::find_if(active_, of_id);
    if (active != active_.end()) (*active)->signals().cancel();
    // It may wait for a direct user of the model to give up its turn.
    if (is_in_step_) caller_->cancel();
    news_ = true;
  }
  has_news_.notify_one();
}

void Scheduler::Loop::resume(TextRequestId id) {
  {
    const std::lock_guard lock(mutex_);
    for (const TextPtr& text : active_) {
      if (text->id() == id) text->signals().resume();
    }
    news_ = true;
  }
  has_news_.notify_one();
}

void Scheduler::Loop::refuse() {
  const std::lock_guard lock(mutex_);
  is_draining_ = true;
}

bool Scheduler::Loop::drain(std::optional<std::chrono::milliseconds> time) {
  std::unique_lock lock(mutex_);
  is_draining_ = true;
  const auto is_idle = [this] { return is_idle_; };
  if (time) return became_idle_.wait_for(lock, *time, is_idle);
  became_idle_.wait(lock, is_idle);
  return true;
}

SchedulerCounters Scheduler::Loop::counters() const {
  const std::lock_guard lock(mutex_);
  SchedulerCounters counters = counters_;
  counters.waiting = static_cast<int64_t>(queue_.size());
  for (const auto& [id, slot] : slots_) {
    counters.parked += slot.state == ActiveText::State::kParked ? 1 : 0;
    counters.preempted += slot.state == ActiveText::State::kPreempted ? 1 : 0;
  }
  counters.running = static_cast<int64_t>(slots_.size()) - counters.preempted;
  return counters;
}

std::vector<ActiveText> Scheduler::Loop::slots() const {
  const std::lock_guard lock(mutex_);
  std::vector<ActiveText> slots;
  for (const TextPtr& text : active_) {
    if (const auto slot = slots_.find(text->id()); slot != slots_.end()) {
      slots.push_back(slot->second);
    }
  }
  return slots;
}

// --- The thread ---

void Scheduler::Loop::run() {
  while (true) {
    end_cancelled();
    free_parked();
    settle_masks();
    admit();
    tell_news();
    if (step()) continue;
    if (is_to_write()) {
      write_kept();
    } else if (!wait()) {
      return;
    }
  }
}

// False when there will be no more.
bool Scheduler::Loop::wait() {
  std::unique_lock lock(mutex_);
  const bool is_empty = active_.empty() && queue_.empty() && dismissed_.empty();
  if (is_empty) {
    is_idle_ = true;
    became_idle_.notify_all();
    if (is_stopping_) return false;
  }
  // A request that waits for room gets it some time.
  const bool waits_for_room =
      !queue_.empty() || std::ranges::any_of(active_, [](const TextPtr& text) {
        return text->preemption().is_waiting && !text->is_parked();
      });
  const bool waits_for_mask = std::ranges::any_of(
      active_, [](const TextPtr& text) { return text->masks().job() != nullptr; });
  const auto has_news = [this] { return news_; };
  if (waits_for_room) {
    has_news_.wait_for(lock, std::clamp(options_.patience, kRecheckMin, kRecheckMax), has_news);
  } else if (waits_for_mask) {
    has_news_.wait_for(lock, kRecheckMax, has_news);
  } else {
    has_news_.wait(lock, has_news);
  }
  news_ = false;
  return true;
}

void Scheduler::Loop::end_cancelled() {
  const std::vector<TextPtr> active = active_;
  for (const TextPtr& text : active) {
    if (text->end_if_cancelled()) finish(text);
  }
}

// To those who wait and those who waited.
void Scheduler::Loop::tell_news() {
  std::vector<TextPtr> dismissed;
  std::vector<TextPtr> waiting;
  {
    const std::lock_guard lock(mutex_);
    dismissed.swap(dismissed_);
    counters_.cancelled += dismissed.size();
    if (std::exchange(queue_changed_, false)) waiting.assign(queue_.begin(), queue_.end());
  }
  for (const TextPtr& text : dismissed) {
    text->note_begin();
    text->receiver().on_done(text->work().statistics);
  }
  for (size_t i = 0; i < waiting.size(); ++i) {
    waiting[i]->tell_position(static_cast<int64_t>(i) + 1);
  }
}

// Memory has run out for a text that would go on. One that is parked may stay so for good.
bool Scheduler::Loop::waits_for_memory() const {
  return std::ranges::any_of(out_of_memory_, [this](TextRequestId id) {
    const TextPtr text = find(id);
    return text != nullptr && !text->is_parked();
  });
}

// Requests that wait for memory do not wait for paused ones, whose receivers may never read on.
void Scheduler::Loop::free_parked() {
  if (!waits_for_memory()) return;
  for (const TextPtr& text : active_) {
    if (text->is_parked() && text->state() != nullptr) text->take_state();
  }
}

// Where memory ran out for a text, those that have some end before it begins again, and nobody
// begins beside it, who ran out of it too neither.
bool Scheduler::Loop::is_ready(const RunningText& text) const {
  if (text.is_parked() || text.preemption().is_waiting || text.waits_for_mask()) return false;
  if (!waits_for_memory() || text.state() != nullptr) return true;
  const bool nobody_has_memory =
      std::ranges::none_of(active_, [](const TextPtr& other) { return other->state() != nullptr; });
  const auto first = std::ranges::find_if(out_of_memory_, [this](TextRequestId id) {
    const TextPtr other = find(id);
    return other != nullptr && !other->is_parked();
  });
  return nobody_has_memory && first != out_of_memory_.end() && *first == text.id();
}

// Evicts what the text may need, but for the kept text from which it will begin.
void Scheduler::Loop::make_room(const RunningText& text) {
  bool begins_from_kept = false;
  if (waits_for_memory()) {
    kept_.clear();
  } else if (text.state() == nullptr) {
    const KeptStates::Match match = kept_.find(reusable(text), text.request().client);
    begins_from_kept = match.usable > 0;
    if (begins_from_kept) kept_.use(match);
  }
  const uint64_t taken = active_bytes();
  const uint64_t all = limits_.state_bytes_max;
  kept_.trim(all > taken ? all - taken : 0, begins_from_kept);
  publish_kept();
}

Status Scheduler::Loop::begin(RunningText& text) {
  if (text.end_if_cancelled()) return {};
  text.note_begin();
  text.masks().begin(masks_, text.request().constraint);
  // A state that cannot be restored can be evaluated again.
  if (text.restore(model_)) return {};
  int64_t branch = 0;
  MF_ASSIGN_OR_RETURN(TextState state, find_state(text, branch));
  text.begin_from(std::move(state), branch);
  publish_kept();
  if (!published_.emplace(text.id(), TextWork()).second) return {};  // it begins again
  const std::lock_guard lock(mutex_);
  ++counters_.begun;
  counters_.queued_seconds += text.work().statistics.queued_seconds;
  if (!reusable(text).empty()) {
    counters_.prefix_query_tokens += text.request().prompt.size();
    counters_.prefix_hit_tokens += static_cast<uint64_t>(text.work().statistics.cached_tokens);
  }
  return {};
}

// The tokens whose evaluation may be another text's: the last one's gives the logits.
std::span<const TokenId> Scheduler::Loop::reusable(const RunningText& text) const {
  if (!text.request().reuse || text.request().prompt_logprobs) return {};
  return text.tokens().first(text.tokens().size() - 1);
}

// The state that shares most with the text: a kept one, one of a text that runs, or one of the
// prefix cache, which is read only where it has more than memory has.
Result<TextState> Scheduler::Loop::find_state(const RunningText& text, int64_t& branch) {
  const std::span<const TokenId> wanted = reusable(text);
  const std::string& client = text.request().client;
  const KeptStates::Match kept = kept_.find(wanted, client);
  branch = kept.common;
  RunningText* running = nullptr;
  int64_t of_running = kept.usable;
  for (const TextPtr& other : active_) {
    if (other->state() == nullptr || other->request().client != client) continue;
    const int64_t common = common_tokens(other->state()->tokens(), wanted);
    branch = std::max(branch, common);
    const int64_t usable = other->state()->usable(common);
    if (usable <= of_running) continue;
    of_running = usable;
    running = other.get();
  }
  if (branch < kBranchTokensMin) branch = 0;
  if (!wanted.empty() && engine_.prefixes().find(text.tokens(), client) > of_running) {
    MF_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, Session::create(model_));
    const Result<int64_t> reused = session->reuse_prefix(text.tokens(), client);
    if (reused.ok() && *reused > of_running) return TextState(std::move(session));
  }
  if (running != nullptr) return running->state()->branch(of_running);
  if (kept.usable > 0) return kept_.begin(kept);
  MF_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, Session::create(model_));
  return TextState(std::move(session));
}

// Where memory ran out while others had some of it, the text begins anew once they are done; what
// was told of it stays, and what follows has the same bits.
void Scheduler::Loop::fail(const TextPtr& text, const Error& error) {
  const bool others_have_memory =
      kept_.size() > 0 || std::ranges::any_of(active_, [&](const TextPtr& other) {
        return other != text && other->state() != nullptr;
      });
  if (error.code() == ErrorCode::kResourceExhausted && others_have_memory &&
      out_of_memory_.insert(text->id()).second) {
    text->take_state();
    kept_.clear();
    publish_kept();
    return;
  }
  text->take_state();
  leave(*text, &SchedulerCounters::failed);
  text->receiver().on_failed(error);
}

void Scheduler::Loop::finish(const TextPtr& text) {
  const bool is_cancelled = text->end() == FinishReason::kCancelled;
  leave(*text, is_cancelled ? &SchedulerCounters::cancelled : &SchedulerCounters::finished);
  TextStatistics statistics = text->work().statistics;
  statistics.reason = *text->end();
  text->receiver().on_done(statistics);
  std::optional<TextState> state = text->take_state();
  if (state && text->request().keep) kept_.keep(std::move(*state), text->request().client);
  publish_kept();
}

void Scheduler::Loop::leave(RunningText& text, uint64_t SchedulerCounters::*ended) {
  text.masks().stop();
  publish(text);
  book_.remove(text.id());
  beginnings_.erase(text.id());
  published_.erase(text.id());
  out_of_memory_.erase(text.id());
  const std::lock_guard lock(mutex_);
  ++(counters_.*ended);
  slots_.erase(text.id());
  std::erase_if(active_, [&](const TextPtr& other) { return other.get() == &text; });
}

bool Scheduler::Loop::is_to_write() const {
  if (!engine_.prefixes().are_kept() || !kept_.has_unwritten()) return false;
  const std::lock_guard lock(mutex_);
  return !is_stopping_;
}

// When nobody waits, as a write to the drive holds everybody up. A state that could not be written
// is evaluated again some day.
void Scheduler::Loop::write_kept() {
  const Turn turn(model_, {caller_}, -1);
  if (turn.state() != Turn::State::kRunning || kept_.write_next().ok()) return;
  const std::lock_guard lock(mutex_);
  ++counters_.prefix_write_failures;
}

void Scheduler::Loop::publish(const RunningText& text) {
  const TextWork work = text.work();
  const TextWork before = std::exchange(published_[text.id()], work);
  const std::lock_guard lock(mutex_);
  const TextStatistics& told = work.statistics;
  counters_.prompt_tokens += static_cast<uint64_t>(work.piece_tokens - before.piece_tokens);
  counters_.generated_tokens +=
      static_cast<uint64_t>(told.generated_tokens - before.statistics.generated_tokens);
  counters_.decode_steps += static_cast<uint64_t>(work.decode_steps - before.decode_steps);
  counters_.drafts += told.drafts - before.statistics.drafts;
  counters_.prefill_seconds += told.prefill_seconds - before.statistics.prefill_seconds;
  counters_.decode_seconds += told.decode_seconds - before.statistics.decode_seconds;
  if (work.first_token_seconds && !before.first_token_seconds) {
    ++counters_.first_tokens;
    counters_.first_token_seconds += *work.first_token_seconds;
  }
  counters_.text_tokens_max =
      std::max(counters_.text_tokens_max, work.processed_tokens + told.generated_tokens);
  ActiveText& slot = slots_[text.id()];
  slot.cached_tokens = told.cached_tokens;
  slot.processed_tokens = work.processed_tokens;
  slot.generated_tokens = told.generated_tokens;
  slot.state = state_of(text);
}

void Scheduler::Loop::publish_state(const RunningText& text) {
  const std::lock_guard lock(mutex_);
  slots_[text.id()].state = state_of(text);
}

void Scheduler::Loop::publish_kept() {
  const std::lock_guard lock(mutex_);
  counters_.kept_texts = static_cast<int64_t>(kept_.size());
  counters_.kept_tokens = kept_.tokens();
}

// Bytes that the request's state may grow to, remembered: a sum over layers takes microseconds.
uint64_t Scheduler::Loop::state_bytes(const RunningText& text) const {
  const int64_t more = text.request().tokens_max < 0 ? kUnlimitedTokens : text.request().tokens_max;
  const int64_t planned =
      std::min(engine_.memory_plan().context_length, text.request().prompt_length() + more);
  const int64_t length = std::max(planned, static_cast<int64_t>(text.tokens().size()));
  if (state_bytes_.size() > kStateBytesKnown) state_bytes_.clear();
  uint64_t& bytes = state_bytes_[{planned, length}];
  if (bytes > 0) return bytes;
  const bool needs_checkpoint = engine_.loaded().shortest_truncation(planned) > 0;
  return bytes = engine_.state_bytes(length) + (needs_checkpoint ? engine_.state_bytes(0) : 0);
}

uint64_t Scheduler::Loop::active_bytes() const {
  uint64_t bytes = 0;
  for (const TextPtr& text : active_) {
    if (!text->preemption().is_waiting) bytes += state_bytes(*text);
  }
  return bytes;
}

}  // namespace moeflux
