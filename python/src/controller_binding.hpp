/// The class Controller of troupe._troupe.
#pragma once

#include <pybind11/pybind11.h>

namespace troupe::python {

void bind_controllers(pybind11::module_& module);

} // namespace troupe::python
