// A service within another program: its answers end when it is closed, and it ends with the last of
// them to be freed.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "library/answer_box.h"
#include "serve/service.h"

namespace moeflux {

/// All functions are for any thread.
class ServiceHost {
 public:
  explicit ServiceHost(std::unique_ptr<serve::Service> service);

  /// Begins to answer; see mf_service_submit(). Fails with kCancelled after close().
  Result<std::shared_ptr<AnswerBox>> submit(const serve::Request& request,
                                            std::function<void()> on_ready);
  void drain();
  /// Aborts the answers that have not ended. The service goes on until this object ends.
  void close();

  bool is_draining() const { return is_draining_; }
  const serve::Service& service() const { return *service_; }

 private:
  const std::unique_ptr<serve::Service> service_;
  std::atomic<bool> is_draining_{false};           // drain() has begun
  std::mutex mutex_;                               // guards what follows
  std::vector<std::weak_ptr<AnswerBox>> answers_;  // answers that may not have ended
  bool is_closed_ = false;
};

}  // namespace moeflux
