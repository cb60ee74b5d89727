// Services and answers for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace moeflux_python {

/// Service, ServiceOptions and Answer of moeflux._core.
void bind_service(pybind11::module_& module);

}  // namespace moeflux_python
