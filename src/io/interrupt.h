// Ctrl-C as a stop request: no handler, no global flag, a thread that waits for the signal.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>

namespace moeflux {

constexpr int kInterruptedStatus = 130;  // 128 + SIGINT, as shells report it

/// From construction to destruction, the first SIGINT, SIGTERM or SIGHUP of the process requests a
/// stop; a second SIGINT or SIGTERM ends the process at once with kInterruptedStatus. A SIGHUP that
/// was ignored, as nohup leaves it, stays so. Create it before any other thread, so that they
/// inherit the blocked signals.
class InterruptListener {
 public:
  virtual ~InterruptListener() = default;
  virtual std::stop_token token() const = 0;
};
std::unique_ptr<InterruptListener> listen_for_interrupts();
/// Calls `interrupted` for every SIGINT instead, on a thread of its own; the others are as above.
std::unique_ptr<InterruptListener> listen_for_interrupts(std::function<void()> interrupted);

}  // namespace moeflux
