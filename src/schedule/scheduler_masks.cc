#include "schedule/scheduler_masks.h"

#include <algorithm>
#include <ctime>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "io/thread_priority.h"

namespace moeflux {
namespace {

// Masks of schemas take some tenths of a millisecond, those of ambiguous grammars tens.
constexpr std::chrono::microseconds kQuickMax{2000};
// A grammar whose masks take long now and then is slow.
constexpr int kQuickInARow = 4;

std::chrono::microseconds processor_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

}  // namespace

void MaskPace::note(std::chrono::microseconds taken) {
  if (taken > kQuickMax) {
    kind_ = Kind::kSlow;
    quick_in_a_row_ = 0;
  } else if (kind_ == Kind::kNew || ++quick_in_a_row_ >= kQuickInARow) {
    kind_ = Kind::kQuick;
  }
}

SchedulerMasks::~SchedulerMasks() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    for (const JobPtr& job : running_) job->text->stop();
  }
  has_job_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// False where the system has no threads for it: each needs the other.
bool SchedulerMasks::start() {
  try {
    for (const bool is_for_quick : {true, false}) {
      threads_.emplace_back([this, is_for_quick] { run(is_for_quick); });
    }
    return true;
  } catch (const std::system_error&) {
  }
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  has_job_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  const std::lock_guard lock(mutex_);
  is_stopping_ = false;
  return false;
}

std::shared_ptr<const MaskJob> SchedulerMasks::submit(std::shared_ptr<ConstrainedText> text,
                                                      std::optional<TokenId> token,
                                                      std::vector<TokenId> drafts,
                                                      MaskPace::Kind pace) {
  auto job = std::make_shared<MaskJob>();
  job->text = std::move(text);
  job->token = token;
  job->drafts = std::move(drafts);
  job->pace = pace;
  if (threads_.empty() && !start()) {
    compute(*job);
    job->is_done = true;
    return job;
  }
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(job);
  }
  has_job_.notify_all();
  return job;
}

void SchedulerMasks::wait(std::span<const std::shared_ptr<const MaskJob>> jobs,
                          MaskJob::Clock::time_point then) {
  std::unique_lock lock(mutex_);
  job_done_.wait_until(lock, then, [&] {
    return std::ranges::all_of(jobs, [](const auto& job) { return job->is_done.load(); });
  });
}

// One thread keeps to texts known to be quick, so that none of them waits for a slow one; the other
// gives way to whoever computes a step. Each helps out where the other is busy: a quick text can
// become slow.
void SchedulerMasks::run(bool is_for_quick) {
  if (!is_for_quick) lower_thread_priority();
  while (true) {
    JobPtr job;
    {
      std::unique_lock lock(mutex_);
      has_job_.wait(lock, [&] {
        job = is_stopping_ ? nullptr : take(is_for_quick);
        return is_stopping_ || job != nullptr;
      });
      if (job == nullptr) return;
      running_.push_back(job);
      (is_for_quick ? is_quick_busy_ : is_other_busy_) = true;
    }
    // A waiting job may be for the other thread now.
    has_job_.notify_all();
    compute(*job);
    {
      const std::lock_guard lock(mutex_);
      std::erase(running_, job);
      (is_for_quick ? is_quick_busy_ : is_other_busy_) = false;
      job->is_done = true;
    }
    job_done_.notify_all();
    on_done_();
  }
}

SchedulerMasks::JobPtr SchedulerMasks::take(bool is_for_quick) {
  using Kind = MaskPace::Kind;
  const auto first_of = [this](Kind kind) {
    return std::ranges::find_if(waiting_, [kind](const JobPtr& job) { return job->pace == kind; });
  };
  auto found = first_of(is_for_quick ? Kind::kQuick : Kind::kNew);
  const auto or_else = [&](bool is_for_it, Kind kind) {
    if (found == waiting_.end() && is_for_it) found = first_of(kind);
  };
  or_else(is_for_quick && is_other_busy_, Kind::kNew);
  or_else(!is_for_quick && is_quick_busy_, Kind::kQuick);
  or_else(!is_for_quick, Kind::kSlow);
  if (found == waiting_.end()) return nullptr;
  JobPtr job = std::move(*found);
  waiting_.erase(found);
  return job;
}

void SchedulerMasks::compute(MaskJob& job) {
  const std::chrono::microseconds begin = processor_time();
  job.outcome = job.text->advance(job.token);
  job.taken = processor_time() - begin;
  if (job.outcome.ok() && !job.drafts.empty()) job.outcome = job.text->look_ahead(job.drafts);
}

void TextMasks::begin(SchedulerMasks& masks, const std::shared_ptr<const Constraint>& constraint) {
  if (constraint == nullptr || text_ != nullptr) return;
  masks_ = &masks;
  text_ = ConstrainedText::make(constraint);
  submit(std::nullopt);
}

void TextMasks::submit(std::optional<TokenId> token, std::vector<TokenId> drafts) {
  job_ = masks_->submit(text_, token, std::move(drafts), pace_.kind());
}

Status TextMasks::take() {
  MF_CHECK(job_ != nullptr && job_->is_done);
  const std::shared_ptr<const MaskJob> job = std::exchange(job_, nullptr);
  pace_.note(job->taken);
  return job->outcome;
}

void TextMasks::stop() const {
  if (job_ != nullptr) text_->stop();
}

}  // namespace moeflux
