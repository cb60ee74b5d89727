// How a function of moeflux.h ends: a code and a message, and never an exception.
#pragma once

#include <cstring>
#include <new>
#include <string>
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

Error null_argument(const char* name);
Outcome busy();
/// MF_OK when `count` things fit in `capacity`, after storing it.
Outcome fit(const char* what, size_t count, size_t capacity, size_t* stored);

/// Runs the body of a function: its result is an Outcome or a Status.
template <typename Body>
mf_code guarded(mf_error* error, Body&& body) noexcept {
  try {
    return report(Outcome(body()), error);
  } catch (const std::bad_alloc&) {
    return report(MF_ERROR_RESOURCE_EXHAUSTED, "out of memory", error);
  } catch (...) {
    return report(MF_ERROR_CANCELLED, "a callback left with an exception", error);
  }
}

/// The same for a body that computes on a model: fails while another call does.
template <typename Body>
mf_code in_turn(OpenModel& model, mf_error* error, Body&& body) noexcept {
  return guarded(error, [&]() -> Outcome {
    const Turn turn(model);
    if (!turn.has_turn()) return busy();
    return body();
  });
}

}  // namespace moeflux
