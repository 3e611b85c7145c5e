/// Converts troupe's errors to Python exceptions.
#pragma once

#include <troupe/device/error.hpp>

#include <pybind11/pybind11.h>

#include <string>
#include <utility>

namespace troupe::python {

/// Returns an instance of the class in troupe/_errors.py for \p failure's code, or None if it has no code. The caller
/// must hold the GIL.
[[nodiscard]] pybind11::object to_python(const error& failure);

/// Throws \p failure as a Python exception. The caller must hold the GIL.
[[noreturn]] void raise(const error& failure);

/// Returns an exception with code invalid_argument.
[[nodiscard]] inline exception invalid(std::string text) {
  return exception{errc::invalid_argument, std::move(text)};
}

/// Returns the name of the type of \p what.
[[nodiscard]] inline std::string type_name_of(const pybind11::handle& what) {
  return pybind11::cast<std::string>(pybind11::str(pybind11::type::handle_of(what).attr("__name__")));
}

/// Converts an argument. Errors: invalid_argument, which names the parameter, the value and \p wanted, e.g. "a number".
template <class Value>
[[nodiscard]] Value argument(const std::string& name, const pybind11::handle& value, const char* wanted) {
  try {
    return pybind11::cast<Value>(pybind11::reinterpret_borrow<pybind11::object>(value));
  } catch (const pybind11::cast_error&) {
    throw invalid(name + " is " + pybind11::cast<std::string>(pybind11::repr(value)) + ": give " + wanted);
  }
}

/// Registers the translation of every troupe::exception to a Python exception.
void translate_exceptions();

} // namespace troupe::python
