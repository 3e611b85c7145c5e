#include "failure.hpp"

#include <troupe/collectives/progress/absence_report.hpp>

#include <exception>
#include <utility>

namespace troupe::python {

namespace py = pybind11;

namespace {

template <class Number>
py::object number_or_none(const std::optional<Number>& what) {
  if constexpr (requires { what->value(); })
    return what ? py::object{py::int_(what->value())} : py::object{py::none()};
  else
    return what ? py::object{py::int_(*what)} : py::object{py::none()};
}

py::object missing_ranks(const error& failure) {
  py::list all;
  if (failure.absence)
    for (const rank one : failure.absence->missing()) all.append(one.value());
  return py::tuple(all);
}

} // namespace

py::object to_python(const error& failure) {
  if (!failure) return py::none();
  py::dict fields;
  fields["code"] = std::string{to_string(failure.code)};
  fields["effect"] = failure.effect == effect::rejected ? "rejected" : "unknown_outcome";
  fields["text"] = failure.text;
  fields["call"] = failure.call;
  fields["native_code"] = failure.native_code;
  fields["native_text"] = failure.native_text;
  fields["rank"] = number_or_none(failure.rank);
  fields["epoch"] = number_or_none(failure.epoch);
  fields["ticket"] = number_or_none(failure.ticket);
  fields["part"] = number_or_none(failure.part);
  fields["missing_ranks"] = missing_ranks(failure);
  fields["undefined"] = failure.undefined ? py::object{py::str(describe(*failure.undefined))} : py::object{py::str()};
  return py::module_::import("troupe._errors").attr("make_error")(to_string(failure), fields);
}

void raise(const error& failure) {
  const py::object made = to_python(failure);
  PyErr_SetObject(py::type::of(made).ptr(), made.ptr());
  throw py::error_already_set{};
}

void translate_exceptions() {
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(std::move(thrown));
    } catch (const exception& failure) {
      const py::object made = to_python(failure.why());
      PyErr_SetObject(py::type::of(made).ptr(), made.ptr());
    }
  });
}

} // namespace troupe::python
