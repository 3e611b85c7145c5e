/// Binds the class Driver of troupe._troupe: a process without a rank that asks the ranks of a world.
#include "failure.hpp"
#include "operand.hpp"
#include "reply.hpp"
#include "request.hpp"
#include "runtime_binding.hpp"
#include "world_binding.hpp"

#include <troupe/actors/world/world_event.hpp>
#include <troupe/processes/world_driver.hpp>

#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::python {

namespace py = pybind11;

namespace {

constexpr std::chrono::seconds default_deadline{10};
constexpr std::chrono::seconds default_capture_deadline{60};

/// The replies that wait until a driver's world is ready or has ended. Threads: safe from any.
class readiness {
public:
  void add(epoch after, std::shared_ptr<value_reply> one) {
    const std::lock_guard lock{mutex_};
    waiting_.emplace_back(after, std::move(one));
  }
  void hear(const world_event& now) {
    answer(now, [&](epoch after) { return is_ready_after(now, after); });
  }
  /// Does nothing in a fork: a thread of the parent may have held the lock.
  void close() {
    if (made_.is_inherited()) return;
    answer(error{.code = errc::stopping, .text = "the driver has been closed: make another"},
           [](epoch) { return true; });
  }

private:
  template <class Condition>
  void answer(const value_reply::value& with, Condition is_due) {
    std::vector<std::pair<epoch, std::shared_ptr<value_reply>>> due;
    {
      const std::lock_guard lock{mutex_};
      const auto first =
          std::stable_partition(waiting_.begin(), waiting_.end(), [&](const auto& one) { return !is_due(one.first); });
      due.assign(std::make_move_iterator(first), std::make_move_iterator(waiting_.end()));
      waiting_.erase(first, waiting_.end());
    }
    for (const auto& one : due) one.second->deliver(with);
  }

  const home_process made_;
  std::mutex mutex_;
  std::vector<std::pair<epoch, std::shared_ptr<value_reply>>> waiting_;
};

/// The object behind Python's Driver. Threads: those that hold the GIL.
class shown_driver {
public:
  explicit shown_driver(const configuration& settings) : held_{"the driver", settings} {
    held_.get().on_event([waiting = waiting_](const world_event& now) { waiting->hear(now); });
  }

  [[nodiscard]] world_driver& get() const { return held_.get(); }
  [[nodiscard]] std::shared_ptr<value_reply> ready(std::uint64_t after) const {
    auto answered = std::make_shared<value_reply>();
    world_driver& of = get();
    static_cast<void>(of.status()); // refused in a fork
    waiting_->add(epoch{after}, answered);
    waiting_->hear(of.status());
    return answered;
  }
  void close() {
    waiting_->close();
    held_.close();
  }
  ~shown_driver() { waiting_->close(); }
  shown_driver(const shown_driver&) = delete;
  shown_driver& operator=(const shown_driver&) = delete;

private:
  std::shared_ptr<readiness> waiting_ = std::make_shared<readiness>();
  ended_without_gil<world_driver> held_;
};

real_time_ptr<shown_driver> make_driver(const py::dict& given, const py::object& file,
                                        const std::optional<std::string>& token) {
  configuration settings = gathered_settings_of(given, file, py::none());
  if (token) settings.control.assignment.token = *token;
  return real_time_ptr<shown_driver>{new shown_driver{settings}};
}

given_operand import_operand(const py::object& what, const py::object& as) {
  if (!py::isinstance<shown_remote>(what))
    throw invalid("an operand of type " + type_name_of(what) +
                  " is memory of this process, which has no rank: give a troupe.RemoteBuffer of the rank");
  return import_remote(what.cast<const shown_remote&>(), optional_dtype_of(as));
}

std::shared_ptr<reply> ask(const shown_driver& self, const std::vector<asked_operation>& parts,
                           const py::object& deadline, const py::object& outputs) {
  release_due();
  world_request asked{.parts = {}, .deadline = duration_of(deadline, world_default_deadline)};
  for (const asked_operation& one : parts) asked.parts.push_back(one.what);
  world_driver& by = self.get();
  auto answered = reply::make(outputs.is_none() ? held_object{} : held_object{outputs});
  by.ask(std::move(asked), answered->make_reply_promise());
  return answered;
}

} // namespace

void bind_drivers(py::module_& module) {
  py::class_<shown_driver, real_time_ptr<shown_driver>>(module, "Driver")
      .def(py::init(&make_driver), py::arg("settings"), py::arg("config"), py::arg("token"))
      .def("size", [](const shown_driver& self) { return self.get().size(); })
      .def("local_ranks", [](const shown_driver&) { return std::vector<int>{}; })
      .def("status", [](const shown_driver& self) { return shown_event(self.get().status()); })
      .def("has_rings", [](const shown_driver& self) { return self.get().has_rings(); })
      .def("ready", &shown_driver::ready)
      .def("listen",
           [](const shown_driver& self, const std::shared_ptr<event_queue>& queue) {
             self.get().on_event([queue](const world_event& one) { queue->put(one); });
           })
      .def("operand", [](const shown_driver&, int, const py::object& what, const py::object& as, const py::object&,
                         bool) { return import_operand(what, as); })
      .def("function",
           [](const shown_driver&, std::string name) {
             return shown_function{std::make_shared<const rank_function>(std::move(name))};
           })
      .def("ask", &ask, py::arg("parts"), py::arg("deadline"), py::arg("out"))
      .def("find_memory",
           [](const shown_driver& self, int target, const std::string& name, const py::object& type,
              const py::object& deadline) {
             const auto ask = [&](auto to) {
               self.get().find_memory(rank{target}, name, duration_of(deadline, default_deadline), std::move(to));
             };
             return ask_for<remote_buffer>(ask, optional_dtype_of(type));
           })
      .def("allocate",
           [](const shown_driver& self, int target, std::size_t size, const py::object& type,
              const py::object& deadline) {
             const auto ask = [&](auto to) {
               self.get().allocate(rank{target}, size, duration_of(deadline, default_deadline), std::move(to));
             };
             return ask_for<remote_buffer>(ask, optional_dtype_of(type));
           })
      .def("release", [](const shown_driver& self, const shown_remote& one) { self.get().release(one.what); })
      .def("read",
           [](const shown_driver& self, const shown_remote& from, const py::object& deadline) {
             return ask_for<std::string>(
                 [&](auto to) { self.get().read(from.what, duration_of(deadline, default_deadline), std::move(to)); });
           })
      .def("metrics",
           [](const shown_driver& self, int target, const py::object& deadline) {
             return ask_for<std::string>([&](auto to) {
               self.get().metrics(rank{target}, duration_of(deadline, default_deadline), std::move(to));
             });
           })
      .def("flight_record",
           [](const shown_driver& self, int target, const py::object& deadline) {
             return ask_for<std::string>([&](auto to) {
               self.get().flight_record(rank{target}, duration_of(deadline, default_deadline), std::move(to));
             });
           })
      .def("capture",
           [](const shown_driver& self, const std::string& name, const std::vector<std::vector<asked_operation>>& steps,
              const py::object& deadline) {
             release_due();
             plan_steps all;
             for (const auto& parts : steps) {
               auto& step = all.emplace_back();
               for (const asked_operation& one : parts) step.push_back(one.what);
             }
             auto answered = reply::make(held_object{});
             self.get().capture(name, std::move(all), duration_of(deadline, default_capture_deadline),
                                answered->make_reply_promise());
             return answered;
           })
      .def("drop_plan", [](const shown_driver& self, const std::string& name) { self.get().drop_plan(name); })
      .def("change",
           [](const shown_driver& self, int kind, std::optional<int> place, std::string host, bool renumbers) {
             rank_change asked{.kind = rank_change_kind{static_cast<std::uint8_t>(kind)},
                               .place = place,
                               .host = std::move(host),
                               .renumbers = renumbers};
             return ask_for<world_processes>([&](auto to) { self.get().change(asked, std::move(to)); });
           })
      .def("close", &shown_driver::close);
}

} // namespace troupe::python
