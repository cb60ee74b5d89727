// Calls of the library without the interpreter's lock, whose errors become exceptions.
#pragma once

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <atomic>
#include <moeflux/moeflux.hpp>
#include <thread>
#include <utility>

namespace moeflux_python {

/// Calls C that may run Python's code or wait for the interpreter's lock. An interpreter that ends
/// stops other threads there by unwinding them (CPython before 3.14), which aborts the process in a
/// destructor and frees objects without the lock elsewhere: such a thread waits for the process's
/// end instead. C throws nothing else.
template <typename Call>
auto call_c(Call call) {
  try {
    return call();
  } catch (...) {
    for (;;) pause();
  }
}

/// Holds the interpreter's lock.
class Locked {
 public:
  Locked() : state_(call_c([] { return PyGILState_Ensure(); })) {}
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  const PyGILState_STATE state_;
};

/// Lets other threads have the interpreter's lock.
class Unlocked {
 public:
  Unlocked() : thread_(PyEval_SaveThread()) {}
  ~Unlocked() {
    call_c([this] { PyEval_RestoreThread(thread_); });
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* const thread_;
};

/// Calls `callback`. With the lock.
inline pybind11::object call(const pybind11::object& callback, const pybind11::tuple& arguments) {
  PyObject* const answer =
      call_c([&] { return PyObject_CallObject(callback.ptr(), arguments.ptr()); });
  if (answer == nullptr) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::object>(answer);
}

/// Frees what nobody else has, which may run Python's code. With the lock.
inline void drop(pybind11::object object) {
  call_c([owned = object.release().ptr()] { Py_DECREF(owned); });
}

/// None goes on, as every true value does. With the lock.
inline bool goes_on(pybind11::object answer) {
  const int truth = answer.is_none() ? 1 : call_c([&] { return PyObject_IsTrue(answer.ptr()); });
  drop(std::move(answer));
  if (truth < 0) throw pybind11::error_already_set();
  return truth != 0;
}

inline pybind11::object exception_of(const moeflux::Error& error) {
  const pybind11::object error_for = pybind11::module_::import("moeflux._errors").attr("error_for");
  return call(error_for, pybind11::make_tuple(static_cast<int>(error.code), error.message));
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
    const Locked lock;
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
    const Unlocked other_threads_run;
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
