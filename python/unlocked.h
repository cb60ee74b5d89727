// Calls of the library without the interpreter's lock, whose errors become exceptions.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <moeflux/moeflux.hpp>
#include <thread>
#include <utility>

namespace moeflux_python {

inline pybind11::object exception_of(const moeflux::Error& error) {
  return pybind11::module_::import("moeflux._errors")
      .attr("error_for")(static_cast<int>(error.code), error.message);
}

[[noreturn]] inline void raise(const moeflux::Error& error) {
  const pybind11::object exception = exception_of(error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw pybind11::error_already_set();
}

/// Ends calls between their steps: the main thread's with Ctrl-C, where signals' handlers run, and
/// those of other threads when the interpreter ends.
class Interrupts {
 public:
  /// The interpreter's, which calls that outlive it may still ask.
  static Interrupts& of_interpreter() {
    static auto* const interrupts = new Interrupts;
    return *interrupts;
  }

  static int should_abort(void* self) { return static_cast<Interrupts*>(self)->ask(); }
  void end() { ends_ = true; }
  /// Raises what a handler has raised. With the interpreter's lock.
  void raise_pending() {
    if (std::this_thread::get_id() != main_ || !type_) return;
    PyErr_Restore(type_.release().ptr(), value_.release().ptr(), trace_.release().ptr());
    throw pybind11::error_already_set();
  }

 private:
  int ask() {
    if (std::this_thread::get_id() != main_) return ends_;
    const pybind11::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() == 0) return 0;
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);  // callbacks still come before the call ends
    type_ = pybind11::reinterpret_steal<pybind11::object>(type);
    value_ = pybind11::reinterpret_steal<pybind11::object>(value);
    trace_ = pybind11::reinterpret_steal<pybind11::object>(trace);
    return 1;
  }

  const std::thread::id main_ = std::this_thread::get_id();
  std::atomic<bool> ends_ = false;
  pybind11::object type_, value_, trace_;  // of the main thread
};

/// Runs without the lock; what failed becomes an exception.
template <typename Call>
auto unlocked(Call call) {
  auto result = [&] {
    const pybind11::gil_scoped_release release;
    return call();
  }();
  Interrupts::of_interpreter().raise_pending();
  if (!result) raise(result.error());
  return std::move(result).value();
}

template <typename Call>
void run(Call call) {
  (void)unlocked(call);
}

}  // namespace moeflux_python
