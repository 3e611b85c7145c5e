/// troupe's errors as Python's exceptions.
#pragma once

#include <troupe/device/error.hpp>

#include <pybind11/pybind11.h>

#include <string>

namespace troupe::python {

/// An instance of the class in troupe/_errors.py that \p failure's code names. With the GIL.
[[nodiscard]] pybind11::object to_python(const error& failure);

/// Throws it as Python's. With the GIL.
[[noreturn]] void raise(const error& failure);

/// What a wrong argument is answered with.
[[nodiscard]] inline exception invalid(std::string text) {
  return exception{errc::invalid_argument, std::move(text)};
}

/// From now on every troupe::exception becomes one of Python's.
void translate_exceptions();

} // namespace troupe::python
