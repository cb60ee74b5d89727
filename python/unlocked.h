// Calls of the library without the interpreter's lock, whose errors become exceptions.
#pragma once

#include <pybind11/pybind11.h>

#include <moeflux/moeflux.hpp>
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

/// Runs without the lock; what failed becomes an exception.
template <typename Call>
auto unlocked(Call call) {
  auto result = [&] {
    const pybind11::gil_scoped_release release;
    return call();
  }();
  if (!result) raise(result.error());
  return std::move(result).value();
}

template <typename Call>
void run(Call call) {
  (void)unlocked(call);
}

}  // namespace moeflux_python
