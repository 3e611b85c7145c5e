#include "settings_from_python.hpp"

#include "failure.hpp"
#include "reply_binding.hpp"

#include <troupe/runtime/configuration/settings.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::python {

namespace py = pybind11;

namespace {

const setting& setting_called(const std::string& name) {
  for (const setting& one : all_settings()) {
    std::string as_keyword{one.name};
    std::ranges::replace(as_keyword, '.', '_');
    if (one.name == name || as_keyword == name) return one;
  }
  return find_setting(name); // which says what is near to it
}

std::string text_of(const setting& which, const py::handle& value) {
  if (py::isinstance<py::str>(value)) return py::cast<std::string>(value);
  if (py::isinstance<py::bool_>(value)) return py::cast<bool>(value) ? "1" : "0";
  const bool is_number = py::isinstance<py::int_>(value) || py::isinstance<py::float_>(value);
  if (which.form == "DURATION" && (is_number || py::hasattr(value, "total_seconds"))) {
    const nanoseconds span = duration_of(py::reinterpret_borrow<py::object>(value), {});
    return span == nanoseconds{0} ? "0" : std::to_string(span.count()) + "ns";
  }
  if (py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value)) {
    std::string all;
    for (const py::handle& one : py::reinterpret_borrow<py::sequence>(value))
      all += (all.empty() ? "" : ",") + py::cast<std::string>(py::str(one));
    return all;
  }
  if (py::hasattr(value, "__fspath__")) return py::cast<std::string>(py::str(value.attr("__fspath__")()));
  return py::cast<std::string>(py::str(value));
}

} // namespace

configuration with_settings(configuration start, const py::dict& given) {
  for (const auto& [key, value] : given) {
    if (value.is_none()) continue;
    const auto name = py::cast<std::string>(key);
    const setting& which = setting_called(name);
    try {
      which.set(start, text_of(which, value));
    } catch (const exception& failure) {
      throw invalid("the setting " + std::string{which.name} + " (" + std::string{which.description} +
                    "): " + failure.why().text);
    }
  }
  return start;
}

py::dict shown_event(const world_event& one) {
  const auto numbers = [](const std::vector<rank>& all) {
    py::list made;
    for (const rank each : all) made.append(each.value());
    return py::tuple(made);
  };
  py::list lost;
  for (const lost_rank& each : one.lost) lost.append(each.origin.value());
  py::dict made;
  made["phase"] = std::string{to_string(one.phase)};
  made["epoch"] = one.epoch.value();
  made["world_size"] = one.world_size;
  made["local_ranks"] = numbers(one.local_ranks);
  made["origins"] = numbers(one.origins);
  made["lost"] = py::tuple(lost);
  made["reason"] = one.reason ? to_python(one.reason) : py::object{py::none()};
  made["text"] = describe(one);
  return made;
}

} // namespace troupe::python
