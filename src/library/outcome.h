// How a function of moeflux.h ends: a code and a message, and never an exception.
#pragma once

#include <exception>
#include <memory>
#include <new>
#include <span>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>

#include "base/result.h"
#include "library/handles.h"
#include "moeflux/moeflux.h"

namespace moeflux {

/// Success, an Error, or one of the codes that only this interface has.
struct Outcome {
  Outcome() = default;
  Outcome(Status status);       // NOLINT: by design
  Outcome(const Error& error);  // NOLINT: by design
  Outcome(mf_code with_code, std::string with_message)
      : code(with_code), message(std::move(with_message)) {}

  mf_code code = MF_OK;
  std::string message;
};

/// Writes the outcome to the caller's struct, if there is one, and returns its code.
mf_code report(const Outcome& outcome, mf_error* error) noexcept;
mf_code report(mf_code code, const char* message, mf_error* error) noexcept;

/// A callback's, as far as we know: nothing of ours throws but for want of memory.
mf_code report_exception(const std::exception& exception, mf_error* error) noexcept;

Error null_argument(const char* name);
/// Others kept the turn for `timeout_ms`.
Outcome busy(int64_t timeout_ms);
Outcome cancelled_waiting();
/// MF_OK when `count` things fit in `capacity`, after storing it.
Outcome fit(const char* what, size_t count, size_t capacity, size_t* stored);
/// As many as fit, with the same outcome.
Outcome copy_tokens(std::span<const TokenId> from, int32_t* tokens, size_t capacity, size_t* count);

/// Runs the body of a function: its result is an Outcome or a Status.
template <typename Body>
mf_code guarded(mf_error* error, Body&& body) noexcept {
  try {
    return report(Outcome(body()), error);
  } catch (const std::bad_alloc&) {
    return report(MF_ERROR_RESOURCE_EXHAUSTED, "out of memory", error);
  } catch (const std::exception& e) {
    return report_exception(e, error);
  } catch (...) {
    return report(MF_ERROR_CANCELLED, "a callback left with an exception", error);
  }
}

/// The same for a body that computes on a model: in its turn, for which it waits `timeout_ms` as
/// Turn does. `body` is given the turn's std::stop_token; `cancelled` says how a call ends that was
/// cancelled while it waited.
template <typename Body, typename Cancelled>
mf_code in_turn(std::shared_ptr<OpenModel> model, std::shared_ptr<Session> session,
                int64_t timeout_ms, mf_error* error, Body&& body, Cancelled&& cancelled) noexcept {
  return guarded(error, [&]() -> Outcome {
    const Turn turn(std::move(model), {std::move(session)}, timeout_ms);
    if (turn.state() == Turn::State::kBusy) return busy(timeout_ms);
    if (turn.state() == Turn::State::kCancelled) return cancelled();
    return body(turn.stop_token());
  });
}

/// For calls of a sequence, null included. `body` is given its session and, if it has use for it,
/// the turn's token; it must not look at the handle, which may be freed meanwhile.
template <typename Body, typename Cancelled = Outcome (*)()>
mf_code in_turn(const mf_sequence* sequence, mf_error* error, Body&& body,
                Cancelled&& cancelled = cancelled_waiting) noexcept {
  if (sequence == nullptr) return report(Outcome(null_argument("sequence")), error);
  Session& session = *sequence->session;
  const auto call = [&](std::stop_token stop) -> Outcome {
    if constexpr (std::is_invocable_v<Body, Session&, std::stop_token>) {
      return body(session, std::move(stop));
    } else {
      return body(session);
    }
  };
  return in_turn(session.model(), sequence->session, session.turn_timeout_ms(), error, call,
                 cancelled);
}

}  // namespace moeflux
