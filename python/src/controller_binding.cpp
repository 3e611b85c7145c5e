#include "controller_binding.hpp"

#include "failure.hpp"
#include "reply_binding.hpp"

#include <troupe/runtime/controller.hpp>

#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace troupe::python {

namespace py = pybind11;

namespace {

/// A controller that one thread may close while another waits for it.
class shown_controller {
public:
  explicit shown_controller(controller_options options) {
    const py::gil_scoped_release without;
    held_ = std::make_shared<controller>(std::move(options));
  }
  shown_controller(const shown_controller&) = delete;
  shown_controller& operator=(const shown_controller&) = delete;
  ~shown_controller() { close(); }

  [[nodiscard]] controller& get() const {
    if (!held_) throw exception{errc::stopping, "the controller has been closed: make another"};
    return *held_;
  }
  void close() noexcept {
    if (!held_) return;
    std::shared_ptr<controller> last = std::move(held_);
    const py::gil_scoped_release without;
    last.reset();
  }
  /// Looks for signals (Ctrl-C) now and then. Returns false once the controller has been closed.
  [[nodiscard]] bool wait(const py::object& timeout) {
    constexpr std::chrono::milliseconds between_looks{100};
    const auto until =
        timeout.is_none() ? time_point::max() : later(std::chrono::steady_clock::now(), duration_of(timeout, {}));
    static_cast<void>(get());
    while (const std::shared_ptr<controller> one = held_) {
      const auto left = std::max(until - std::chrono::steady_clock::now(), time_point::duration{0});
      const py::gil_scoped_release without;
      if (one->wait(std::min<nanoseconds>(left, between_looks))) return true;
      const py::gil_scoped_acquire again;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set{};
      if (left == time_point::duration{0}) return false;
    }
    return false;
  }

private:
  std::shared_ptr<controller> held_;
};

std::unique_ptr<shown_controller> make_controller(int processes, std::string host, std::uint16_t port,
                                                  std::string token, const std::optional<std::string>& certificates,
                                                  const std::string& policy, int smallest,
                                                  std::optional<std::size_t> rebuilds, const py::object& gather,
                                                  const py::object& suspicion) {
  controller_options options;
  options.host = std::move(host);
  options.port = port;
  options.terms.world_size = processes;
  options.terms.policy = parse_loss_policy(policy);
  options.terms.smallest = smallest;
  options.terms.token = std::move(token);
  options.terms.rebuilds = rebuilds.value_or(options.terms.rebuilds);
  options.terms.gather = duration_of(gather, options.terms.gather);
  options.terms.suspicion = duration_of(suspicion, options.terms.suspicion);
  options.terms.heartbeat = std::min<nanoseconds>(options.terms.heartbeat, options.terms.suspicion / 4);
  if (certificates) {
    const std::filesystem::path folder{*certificates};
    options.certificates = proxy_credentials{.ca_file = folder / "ca.pem",
                                             .certificate_file = folder / "controller.pem",
                                             .key_file = folder / "controller.key"};
  }
  return std::make_unique<shown_controller>(std::move(options));
}

} // namespace

void bind_controllers(py::module_& module) {
  py::class_<shown_controller>(module, "Controller")
      .def(py::init(&make_controller), py::arg("processes"), py::arg("host"), py::arg("port"), py::arg("token"),
           py::arg("certificates"), py::arg("policy"), py::arg("smallest"), py::arg("rebuilds"), py::arg("gather"),
           py::arg("suspicion"))
      .def("address", [](const shown_controller& self) { return self.get().address(); })
      .def("process_ended", [](const shown_controller& self, std::string name, std::int64_t pid,
                               std::string how) { self.get().process_ended(std::move(name), pid, std::move(how)); })
      .def("stop", [](const shown_controller& self) { self.get().stop(); })
      .def("wait", &shown_controller::wait)
      .def("reason",
           [](const shown_controller& self) -> py::object {
             const error why = self.get().reason();
             return why ? to_python(why) : py::object{py::none()};
           })
      .def("close", &shown_controller::close);
}

} // namespace troupe::python
