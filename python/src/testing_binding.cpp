#include "testing_binding.hpp"

#include "ended_without_gil.hpp"
#include "failure.hpp"
#include "reply_binding.hpp"
#include "settings_from_python.hpp"
#include "world_binding.hpp"

#include <troupe/testing/mock_world.hpp>

#include <pybind11/stl.h>

#include <memory>
#include <utility>

namespace troupe::python {

namespace py = pybind11;

namespace {

using testing::fault_script;
using testing::mock_world;

/// A mock world and the script of its faults.
class shown_mock_world {
public:
  shown_mock_world(int ranks, const py::dict& settings, const py::object& script)
    : script_{script.is_none() ? std::make_shared<fault_script>() : script.cast<std::shared_ptr<fault_script>>()},
      held_{"the mock world", make(with_settings(testing::mock_settings(ranks), settings), script_)} {}

  [[nodiscard]] mock_world& get() const { return held_.get(); }
  [[nodiscard]] const std::shared_ptr<fault_script>& script() const noexcept { return script_; }
  void close() noexcept { held_.close(); }

private:
  static std::unique_ptr<mock_world> make(configuration wanted, std::shared_ptr<fault_script> script) {
    wanted.faults = std::move(script);
    const py::gil_scoped_release without;
    return std::make_unique<mock_world>(std::move(wanted));
  }

  std::shared_ptr<fault_script> script_;
  ended_without_gil<mock_world> held_;
};

} // namespace

void bind_testing(py::module_& module) {
  bind_fault_scripts(module);
  py::class_<shown_mock_world, real_time_ptr<shown_mock_world>>(module, "MockWorld")
      .def(py::init<int, const py::dict&, const py::object&>(), py::arg("ranks"), py::arg("settings"),
           py::arg("script"))
      .def("world", [](shown_mock_world& self) { return show(self.get().world()); })
      .def("script", &shown_mock_world::script)
      .def("wait_until_ready",
           [](shown_mock_world& self, std::uint64_t wanted, const py::object& at_most) {
             const nanoseconds span = duration_of(at_most, std::chrono::seconds{60});
             mock_world& in = self.get();
             const py::gil_scoped_release without;
             return in.wait_until_ready(epoch{wanted}, span);
           })
      .def("close", &shown_mock_world::close);
  bind_virtual_worlds(module);
}

} // namespace troupe::python
