/// Binds the test kit of troupe to Python.
#pragma once

#include <troupe/testing/fault_script.hpp>

#include <pybind11/pybind11.h>

namespace troupe::python {

void bind_testing(pybind11::module_& module);

} // namespace troupe::python
