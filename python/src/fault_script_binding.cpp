#include "failure.hpp"
#include "reply_binding.hpp"
#include "testing_binding.hpp"

#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <vector>

namespace troupe::python {

namespace py = pybind11;

namespace {

using testing::fault_script;
using testing::launch_record;

errc code_called(const std::string& name) {
  for (int value = 1; value <= static_cast<int>(errc::internal); ++value)
    if (to_string(static_cast<errc>(value)) == name) return static_cast<errc>(value);
  throw invalid("unknown error code '" + name + "': see troupe.Error.code, for example communicator_failed");
}

/// Where a line's fault comes: an operation, forming, registration or abort of a rank.
struct fault_place_line {
  std::shared_ptr<fault_script> of;
  rank whom;
  std::optional<epoch> in;
  enum class kind : std::uint8_t { operation, forming, registering, aborting } what;
  std::uint64_t number;

  [[nodiscard]] fault_script::rank_lines lines() const { return in ? of->on(whom).in(*in) : of->on(whom); }
  [[noreturn]] void refuse(const char* fault) const {
    throw invalid("a fault at this place cannot " + std::string{fault} + ": see troupe.testing.FaultScript");
  }

  void fail(const std::string& name) const {
    const errc code = code_called(name);
    switch (what) {
      case kind::operation: return lines().operation(number).fail(code);
      case kind::forming: return lines().forming(number).fail(code);
      case kind::registering: return lines().registering(number).fail(code);
      case kind::aborting: refuse("fail");
    }
  }
  void delay(const py::object& span) const {
    const nanoseconds by = duration_of(span, {});
    switch (what) {
      case kind::operation: return lines().operation(number).delay(by);
      case kind::forming: return lines().forming(number).delay(by);
      case kind::registering: return lines().registering(number).delay(by);
      case kind::aborting: return lines().aborting(number).delay(by);
    }
  }
  void hang() const {
    if (what == kind::operation) return lines().operation(number).hang();
    if (what == kind::forming) return lines().forming(number).hang();
    refuse("hang");
  }
  void fail_later(const std::string& name) const {
    if (what != kind::operation) refuse("fail later");
    lines().operation(number).fail_later(code_called(name));
  }
  void lose_device(const std::string& name) const {
    if (what != kind::operation) refuse("lose a device");
    lines().operation(number).lose_device(code_called(name));
  }
};

/// One rank's lines.
struct shown_rank_lines {
  std::shared_ptr<fault_script> of;
  rank whom;
  std::optional<epoch> in{};

  [[nodiscard]] fault_place_line at(fault_place_line::kind what, std::uint64_t number) const {
    return {of, whom, in, what, number};
  }
};

py::dict shown_launch(const launch_record& one) {
  py::dict made;
  made["rank"] = one.rank.value();
  made["epoch"] = one.epoch.value();
  made["number"] = one.number;
  made["call"] = one.call;
  made["operation"] = std::string{one.operation};
  made["count"] = one.count;
  made["fate"] = std::string{to_string(one.fate)};
  made["lane"] = one.by && !one.by->of_world ? py::object{py::str(one.by->in.name())} : py::object{py::none()};
  made["text"] = describe(one);
  return made;
}

} // namespace

void bind_fault_scripts(py::module_& module) {
  using kind = fault_place_line::kind;
  py::class_<fault_place_line>(module, "FaultLine")
      .def("fail", &fault_place_line::fail, py::arg("code") = "communicator_failed",
           "The call fails with that code, and so does the epoch.")
      .def("fail_later", &fault_place_line::fail_later, py::arg("code") = "communicator_failed",
           "It is launched; then the communicator reports an error.")
      .def("hang", &fault_place_line::hang, "The rank does not reach its peers any more in this epoch.")
      .def("delay", &fault_place_line::delay, py::arg("seconds"), "The call takes that many seconds longer.")
      .def("lose_device", &fault_place_line::lose_device, py::arg("code") = "device_failed",
           "The rank's device fails there: device_failed, or process_poisoned, which fails all devices.");
  py::class_<shown_rank_lines>(module, "RankFaults")
      .def("in_epoch",
           [](const shown_rank_lines& one, std::uint64_t which) {
             return shown_rank_lines{one.of, one.whom, epoch{which}};
           })
      .def(
          "operation", [](const shown_rank_lines& one, std::uint64_t n) { return one.at(kind::operation, n); },
          py::arg("number"), "The rank's operation of that number, from 0 in each epoch.")
      .def("forming", [](const shown_rank_lines& one, std::uint64_t n) { return one.at(kind::forming, n); })
      .def("registering", [](const shown_rank_lines& one, std::uint64_t n) { return one.at(kind::registering, n); })
      .def("aborting", [](const shown_rank_lines& one, std::uint64_t n) { return one.at(kind::aborting, n); })
      .def(
          "out_of_memory_after",
          [](const shown_rank_lines& one, std::size_t size) { one.of->on(one.whom).out_of_memory_after(size); },
          py::arg("size_bytes"), "Its device has that many bytes left.")
      .def(
          "lose_device",
          [](const shown_rank_lines& one, const std::string& code) {
            one.of->on(one.whom).lose_device(code_called(code));
          },
          py::arg("code") = "device_failed", "The next work of its device fails.");
  py::class_<fault_script, std::shared_ptr<fault_script>>(
      module, "FaultScript",
      "The faults to inject and their places, and what each rank was told to launch. Each line happens once.")
      .def(py::init<>())
      .def(
          "on",
          [](const std::shared_ptr<fault_script>& self, int whom) {
            static_cast<void>(self->on(rank{whom})); // which refuses what is no rank
            return shown_rank_lines{self, rank{whom}};
          },
          py::arg("rank"))
      .def("_launches",
           [](const fault_script& self, int whom) {
             py::list all;
             for (const launch_record& one : self.launches(rank{whom})) all.append(shown_launch(one));
             return all;
           })
      .def("waiting", &fault_script::waiting, "Descriptions of the lines that have not happened.")
      .def("release", &fault_script::release, py::call_guard<py::gil_scoped_release>(),
           "Releases what hangs or is delayed, and discards lines that have not happened.");
}

} // namespace troupe::python
