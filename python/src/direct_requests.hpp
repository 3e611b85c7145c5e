/// Offers requests to code that is compiled against another version of pybind11, or without it: the native backend of
/// torch.distributed.
#pragma once

#include <pybind11/pybind11.h>

namespace troupe::python {

/// Adds the capsule `requests` of troupe/torch/native/requests.h to the module.
void bind_direct_requests(pybind11::module_& module);

} // namespace troupe::python
