/// Converts troupe's errors to Python exceptions.
#pragma once

#include <troupe/device/error.hpp>

#include <pybind11/pybind11.h>

#include <string>

namespace troupe::python {

/// Returns an instance of the class in troupe/_errors.py for \p failure's code. The caller must hold the GIL.
[[nodiscard]] pybind11::object to_python(const error& failure);

/// Throws \p failure as a Python exception. The caller must hold the GIL.
[[noreturn]] void raise(const error& failure);

/// Returns an exception with code invalid_argument.
[[nodiscard]] inline exception invalid(std::string text) {
  return exception{errc::invalid_argument, std::move(text)};
}

/// Registers the translation of every troupe::exception to a Python exception.
void translate_exceptions();

} // namespace troupe::python
