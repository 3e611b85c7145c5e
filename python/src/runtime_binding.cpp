#include "ended_without_gil.hpp"
#include "failure.hpp"
#include "settings_from_python.hpp"
#include "testing_binding.hpp"
#include "world_binding.hpp"

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/runtime/configuration/settings.hpp>
#include <troupe/runtime/runtime.hpp>

#include <pybind11/stl.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

namespace troupe::python {

namespace py = pybind11;

namespace {

using shown_runtime = ended_without_gil<runtime>;

real_time_ptr<shown_runtime> make_runtime(const py::dict& given, const py::object& file, const py::object& faults) {
  configuration start =
      file.is_none() ? configuration::from_environment() : configuration::load(py::cast<std::string>(py::str(file)));
  start = with_settings(std::move(start), given);
  if (!faults.is_none()) start.faults = faults.cast<std::shared_ptr<testing::fault_script>>();
  std::unique_ptr<runtime> made;
  {
    const py::gil_scoped_release without;
    made = std::make_unique<runtime>(std::move(start));
  }
  return real_time_ptr<shown_runtime>{new shown_runtime{"the runtime", std::move(made)}};
}

std::shared_ptr<shown_world> form_world(shown_runtime& self, const std::optional<py::bytes>& id) {
  world_options options;
  if (id) {
    const auto text = static_cast<std::string>(*id);
    unique_id one{};
    if (text.size() != one.bytes.size())
      throw invalid("the id has " + std::to_string(text.size()) + " bytes, and a world's id has " +
                    std::to_string(one.bytes.size()) + ": pass what make_unique_id() returned in rank 0");
    std::ranges::transform(text, one.bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
    options.id = one;
  }
  runtime& in = self.get();
  const py::gil_scoped_release without;
  return show(in.form_world(options));
}

} // namespace

void bind_runtimes(py::module_& module) {
  py::class_<shown_runtime, real_time_ptr<shown_runtime>>(module, "Runtime")
      .def(py::init(&make_runtime), py::arg("settings"), py::arg("config"), py::arg("faults"))
      .def("form_world", &form_world, py::arg("id") = py::none())
      .def("make_unique_id",
           [](shown_runtime& self) {
             const unique_id made = self.get().make_unique_id();
             return py::bytes{reinterpret_cast<const char*>(made.bytes.data()), made.bytes.size()}; // NOLINT: as text
           })
      .def("describe", [](shown_runtime& self) { return self.get().describe(); })
      .def("settings",
           [](shown_runtime& self) {
             py::dict all;
             for (const setting& one : all_settings())
               all[py::str(std::string{one.name})] = one.text(self.get().settings());
             return all;
           })
      .def("close", &shown_runtime::close);
}

} // namespace troupe::python
