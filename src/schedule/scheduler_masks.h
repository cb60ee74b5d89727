// Computes beside the steps which tokens may follow in held texts: a grammar that takes long keeps
// its own text waiting and nobody else's.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "chat/constrained_text.h"

namespace moeflux {

/// How long a text's masks have taken, in time of a processor.
class MaskPace {
 public:
  enum class Kind : uint8_t { kNew, kQuick, kSlow };

  Kind kind() const { return kind_; }
  /// A slow one makes a text slow, several quick ones in a row make it quick.
  void note(std::chrono::microseconds taken);

 private:
  Kind kind_ = Kind::kNew;
  int quick_in_a_row_ = 0;
};

/// One text's next mask. Until it is done nobody else touches the text.
struct MaskJob {
  using Clock = std::chrono::steady_clock;

  std::shared_ptr<ConstrainedText> text;
  std::optional<TokenId> token;  // that comes first
  std::vector<TokenId> drafts;   // that may come behind it
  MaskPace::Kind pace = MaskPace::Kind::kNew;
  Clock::time_point since = Clock::now();

  // These are read once it is done.
  std::atomic<bool> is_done = false;
  Status outcome = {};
  std::chrono::microseconds taken{0};
};

/// For one thread, but for what it calls.
class SchedulerMasks {
 public:
  /// `on_done` is called by threads of this, after each job.
  explicit SchedulerMasks(std::function<void()> on_done) : on_done_(std::move(on_done)) {}
  /// Stops what is left.
  ~SchedulerMasks();
  SchedulerMasks(const SchedulerMasks&) = delete;
  SchedulerMasks& operator=(const SchedulerMasks&) = delete;

  std::shared_ptr<const MaskJob> submit(std::shared_ptr<ConstrainedText> text,
                                        std::optional<TokenId> token, std::vector<TokenId> drafts,
                                        MaskPace::Kind pace);
  /// Returns when these are done, or then.
  void wait(std::span<const std::shared_ptr<const MaskJob>> jobs, MaskJob::Clock::time_point then);

 private:
  using JobPtr = std::shared_ptr<MaskJob>;

  bool start();
  void run(bool is_for_quick);
  JobPtr take(bool is_for_quick);
  static void compute(MaskJob& job);

  const std::function<void()> on_done_;
  std::mutex mutex_;  // guards what follows but the threads
  std::condition_variable has_job_;
  std::condition_variable job_done_;
  std::deque<JobPtr> waiting_;
  std::vector<JobPtr> running_;
  bool is_quick_busy_ = false;  // the thread for quick texts has a job
  bool is_other_busy_ = false;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;  // from the first job on
};

/// The masks of one text, one after the other. For the thread of SchedulerMasks.
class TextMasks {
 public:
  /// Has them computed there from now on, the first at once. Nothing happens the second time, or
  /// without a constraint.
  void begin(SchedulerMasks& masks, const std::shared_ptr<const Constraint>& constraint);
  /// Null until begin().
  const std::shared_ptr<ConstrainedText>& text() const { return text_; }
  /// A mask that is being computed or was, until take(); or null.
  const std::shared_ptr<const MaskJob>& job() const { return job_; }
  /// Whether masks behind drafts are computed: a slow grammar's time is not for tokens that may not
  /// come.
  bool looks_ahead() const { return pace_.kind() == MaskPace::Kind::kQuick; }
  /// Has the mask behind this token computed, and those behind drafts.
  void submit(std::optional<TokenId> token, std::vector<TokenId> drafts = {});
  /// The job's outcome once it is done.
  Status take();
  /// The mask is of no use any more.
  void stop() const;

 private:
  SchedulerMasks* masks_ = nullptr;
  std::shared_ptr<ConstrainedText> text_;
  std::shared_ptr<const MaskJob> job_;
  MaskPace pace_;
};

}  // namespace moeflux
