// The parts of a service that outlive its models: stored objects, streams, notes and counts of
// requests. Knows no model.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "serve/kept/job_thread.h"
#include "serve/kept/keeper.h"
#include "serve/kept/resumable_streams.h"
#include "serve/kept/route_records.h"
#include "serve/kept/route_tracer.h"
#include "serve/metrics.h"
#include "serve/request/generation_fields.h"
#include "serve/service_options.h"

namespace moeflux::serve {

/// Thread-safe.
class ServiceState {
 public:
  /// Fails where it cannot keep.
  static Result<std::unique_ptr<ServiceState>> open(ServiceOptions options);

  int64_t started() const { return started_; }  // seconds since 1970
  Keeper& responses() { return *responses_; }
  Keeper& conversations() { return *conversations_; }
  /// Null where none are kept.
  Keeper* chats() { return chats_.get(); }
  const PageOptions& page() const { return options_.page; }
  RouteRecords& routes() { return routes_; }
  RouteTracer& tracer() { return tracer_; }
  ResumableStreams& streams() { return streams_; }
  /// Where answers end that are to be kept.
  JobThread& jobs() { return jobs_; }
  /// Where answers are told: the next step of a model does not wait for their words.
  JobThread& tells() { return tells_; }
  /// Returns when no answer is left that is to be told or kept.
  void wait_for_answers() {
    tells_.wait();
    jobs_.wait();
  }
  /// Waits for another server and gives what answers, by when the job is no longer counted.
  using ToolJob = std::function<std::function<void()>()>;
  /// Runs it; false where too many wait.
  bool add_tool_job(ToolJob job);

  /// `once`: unless the same was said before.
  void note(const std::string& line, bool once = false);
  /// Names of a request that nobody reads, once for each.
  void note_ignored(const std::vector<std::string>& names);

  /// A stream without an end; see end_watching(). It is held until a later call finds it closed: an
  /// answer that nobody holds is given up.
  void watch(const std::shared_ptr<Response>& watcher);
  /// Ends the streams of those who watch and would never leave.
  void end_watching();
  bool is_draining() const { return is_draining_; }
  /// Takes nothing new.
  void refuse() { is_draining_ = true; }
  void count_asked(size_t route) { ++asked_[route]; }
  /// How often each path was asked for, those too that nobody asked for.
  std::vector<AskedCount> asked() const;

 private:
  explicit ServiceState(ServiceOptions options);

  const ServiceOptions options_;
  const int64_t started_;
  std::vector<std::atomic<uint64_t>> asked_;  // by route; the last is for paths that there are not
  std::unique_ptr<Keeper> responses_;
  std::unique_ptr<Keeper> conversations_;
  std::unique_ptr<Keeper> chats_;
  ResumableStreams streams_;
  RouteRecords routes_;
  RouteTracer tracer_;
  std::mutex mutex_;            // guards what follows
  std::set<std::string> told_;  // lines that were noted once
  std::vector<std::shared_ptr<Response>> watchers_;
  std::atomic<bool> is_draining_ = false;
  std::atomic<int> tool_jobs_count_ = 0;
  JobThread tool_jobs_{4};
  JobThread jobs_;   // ends of answers that are to be kept use all of the above
  JobThread tells_;  // last: adds to jobs_
};

}  // namespace moeflux::serve
