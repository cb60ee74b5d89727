#include "io/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>

namespace moeflux {
namespace {

bool is_ignored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

class SigwaitListener : public InterruptListener {
 public:
  explicit SigwaitListener(std::function<void()> interrupted)
      : interrupted_(std::move(interrupted)) {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    if (!is_ignored(SIGHUP)) sigaddset(&signals_, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals_, &previous_);
    thread_ = std::jthread([this] { wait_for_signals(); });
  }
  ~SigwaitListener() override {
    closing_ = true;
    pthread_kill(thread_.native_handle(), SIGTERM);  // blocked everywhere: only wakes our sigwait
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  }
  std::stop_token token() const override { return stop_.get_token(); }

 private:
  void wait_for_signals() {
    while (true) {
      int signal = 0;
      if (sigwait(&signals_, &signal) != 0) return;
      if (closing_) return;
      if (signal == SIGINT && interrupted_) {
        interrupted_();
        continue;
      }
      // A terminal that is closed may send more than one: the first has said it all.
      if (!stop_.request_stop() && signal != SIGHUP) _exit(kInterruptedStatus);
    }
  }

  const std::function<void()> interrupted_;
  sigset_t signals_;
  sigset_t previous_;
  std::stop_source stop_;
  std::atomic<bool> closing_{false};
  std::jthread thread_;
};

}  // namespace

std::unique_ptr<InterruptListener> listen_for_interrupts() {
  return std::make_unique<SigwaitListener>(nullptr);
}

std::unique_ptr<InterruptListener> listen_for_interrupts(std::function<void()> interrupted) {
  return std::make_unique<SigwaitListener>(std::move(interrupted));
}

}  // namespace moeflux
