/// What Python holds of a request, and waits for.
#pragma once

#include "reply.hpp"
#include "request.hpp"

#include <pybind11/pybind11.h>

namespace troupe::python {

/// A duration in seconds, a datetime.timedelta, or None for \p otherwise.
[[nodiscard]] nanoseconds duration_of(const pybind11::object& span, nanoseconds otherwise);

/// A completion with what it wrote, as troupe.Completion.
struct shown_completion {
  completion what;
  pybind11::object outputs;
};

void bind_replies(pybind11::module_& module);

} // namespace troupe::python
