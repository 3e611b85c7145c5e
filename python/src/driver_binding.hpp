/// Binds the class Driver of troupe._troupe: a process without a rank that asks the ranks of a world.
#pragma once

#include <pybind11/pybind11.h>

namespace troupe::python {

void bind_drivers(pybind11::module_& module);

} // namespace troupe::python
