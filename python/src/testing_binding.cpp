/// Binds the test kit of troupe to Python.
#include "failure.hpp"
#include "released_gil.hpp"
#include "reply.hpp"
#include "request.hpp"
#include "runtime_binding.hpp"
#include "world_binding.hpp"

#include <troupe/device/memory/leak_report.hpp>
#include <troupe/testing/fault_script.hpp>
#include <troupe/testing/mock_world.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
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

/// The place of a fault: an operation, forming, registration, check or abort of a rank.
struct fault_place_line {
  std::shared_ptr<fault_script> of;
  rank target;
  std::optional<epoch> in;
  enum class kind : std::uint8_t { operation, forming, registering, checking, aborting } what;
  std::optional<std::uint64_t> number; ///< Empty: the next.
  std::string operation_name{};        ///< Name of the next operation; empty: any.

  [[nodiscard]] fault_script::rank_lines lines() const { return in ? of->on(target).in(*in) : of->on(target); }
  [[noreturn]] void refuse(const char* fault) const {
    throw invalid("a fault at this place cannot " + std::string{fault} + ": see troupe.testing.FaultScript");
  }

  void fail(const std::string& name) const {
    const errc code = code_called(name);
    switch (what) {
      case kind::operation: operation().fail(code); break;
      case kind::forming: forming().fail(code); break;
      case kind::registering: lines().registering(*number).fail(code); break;
      case kind::checking: lines().next_check().fail(code); break;
      case kind::aborting: refuse("fail");
    }
  }
  void delay(const py::object& span) const {
    const nanoseconds by = duration_of(span, {}, "seconds");
    switch (what) {
      case kind::operation: operation().delay(by); break;
      case kind::forming: forming().delay(by); break;
      case kind::registering: lines().registering(*number).delay(by); break;
      case kind::checking: refuse("be late");
      case kind::aborting: (number ? lines().aborting(*number) : lines().next_abort()).delay(by); break;
    }
  }
  void hang() const {
    switch (what) {
      case kind::operation: operation().hang(); break;
      case kind::forming: forming().hang(); break;
      default: refuse("hang");
    }
  }
  void fail_later(const std::string& name) const {
    if (what != kind::operation) refuse("fail later");
    operation().fail_later(code_called(name));
  }
  void lose_device(const std::string& name) const {
    if (what != kind::operation) refuse("lose a device");
    operation().lose_device(code_called(name));
  }

private:
  [[nodiscard]] fault_script::operation_line operation() const {
    return number ? lines().operation(*number) : lines().next_operation(operation_name);
  }
  [[nodiscard]] fault_script::forming_line forming() const {
    return number ? lines().forming(*number) : lines().next_forming();
  }
};

/// Binds fault_script::rank_lines: makes lines for the faults of one rank.
struct shown_rank_lines {
  std::shared_ptr<fault_script> of;
  rank target;
  std::optional<epoch> in{};

  [[nodiscard]] fault_place_line at(fault_place_line::kind what, std::optional<std::uint64_t> number = {},
                                    std::string name = {}) const {
    return {of, target, in, what, number, std::move(name)};
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

std::uint64_t place_of(const char* name, const py::object& given) {
  return argument<std::uint64_t>(name, given, "a whole number, 0 or more");
}

void bind_fault_scripts(py::module_& module) {
  using kind = fault_place_line::kind;
  py::class_<fault_place_line>(module, "FaultLine")
      .def("fail", &fault_place_line::fail, py::arg("code") = "communicator_failed",
           "The call fails with that code, and so does the epoch.")
      .def("fail_later", &fault_place_line::fail_later, py::arg("code") = "communicator_failed",
           "The operation is launched; then the communicator reports an error.")
      .def("hang", &fault_place_line::hang, "The rank does not reach its peers any more in this epoch.")
      .def("delay", &fault_place_line::delay, py::arg("seconds"), "The call takes that many seconds longer.")
      .def("lose_device", &fault_place_line::lose_device, py::arg("code") = "device_failed",
           "The rank's device fails there: device_failed, or process_poisoned, which fails all devices.");
  py::class_<shown_rank_lines>(module, "RankFaults")
      .def(
          "in_epoch",
          [](const shown_rank_lines& one, const py::object& which) {
            return shown_rank_lines{one.of, one.target, epoch{place_of("epoch", which)}};
          },
          py::arg("epoch"))
      .def(
          "operation",
          [](const shown_rank_lines& one, const py::object& n) {
            return one.at(kind::operation, place_of("number", n));
          },
          py::arg("number"), "The rank's operation of that number, from 0 in each epoch.")
      .def(
          "forming",
          [](const shown_rank_lines& one, const py::object& n) { return one.at(kind::forming, place_of("number", n)); },
          py::arg("number"))
      .def(
          "registering",
          [](const shown_rank_lines& one, const py::object& n) {
            return one.at(kind::registering, place_of("number", n));
          },
          py::arg("number"))
      .def(
          "aborting",
          [](const shown_rank_lines& one, const py::object& n) {
            return one.at(kind::aborting, place_of("number", n));
          },
          py::arg("number"))
      .def(
          "next_operation",
          [](const shown_rank_lines& one, std::string name) { return one.at(kind::operation, {}, std::move(name)); },
          py::arg("name") = "", "The rank's next operation, or the next of that name, for example broadcast.")
      .def("next_forming", [](const shown_rank_lines& one) { return one.at(kind::forming); })
      .def(
          "next_check", [](const shown_rank_lines& one) { return one.at(kind::checking); },
          "The next check of the rank's communicator for errors, while requests are in flight.")
      .def("next_abort", [](const shown_rank_lines& one) { return one.at(kind::aborting); })
      .def(
          "out_of_memory_after",
          [](const shown_rank_lines& one, const py::object& size) {
            one.of->on(one.target).out_of_memory_after(place_of("size_bytes", size));
          },
          py::arg("size_bytes"), "Limits the free memory of the rank's device to that many bytes.")
      .def(
          "lose_device",
          [](const shown_rank_lines& one, const std::string& code) {
            one.of->on(one.target).lose_device(code_called(code));
          },
          py::arg("code") = "device_failed", "The next work of the rank's device fails.");
  py::class_<fault_script, std::shared_ptr<fault_script>>(
      module, "FaultScript",
      "The faults to inject and their places, and a record of each rank's launches. Each line happens once.")
      .def(py::init<>())
      .def(
          "on",
          [](const std::shared_ptr<fault_script>& self, const py::object& number) {
            const rank target{argument<int>("rank", number, "the number of a rank")};
            static_cast<void>(self->on(target)); // throws for an invalid rank
            return shown_rank_lines{self, target};
          },
          py::arg("rank"), "Returns the lines of one rank: `script.on(1).operation(3).hang()`.")
      .def("_launches",
           [](const fault_script& self, int target) {
             py::list all;
             for (const launch_record& one : self.launches(rank{target})) all.append(shown_launch(one));
             return all;
           })
      .def("waiting", &fault_script::waiting, "Descriptions of the lines that have not happened.")
      .def("release", &fault_script::release, py::call_guard<released_gil>(),
           "Releases hanging and delayed operations, and discards lines that have not happened.");
}

using testing::mock_world;

/// A mock world and the script of its faults.
class shown_mock_world {
public:
  shown_mock_world(int ranks, const py::dict& settings, const py::object& script)
    : script_{script.is_none() ? std::make_shared<fault_script>() : script.cast<std::shared_ptr<fault_script>>()},
      held_{"the mock world", with_faults(with_settings(testing::mock_settings(ranks), settings), script_)} {}

  [[nodiscard]] mock_world& get() const { return held_.get(); }
  [[nodiscard]] const std::shared_ptr<fault_script>& script() const noexcept { return script_; }
  void close() { held_.close(); }

private:
  static configuration with_faults(configuration wanted, std::shared_ptr<fault_script> script) {
    wanted.faults = std::move(script);
    return wanted;
  }

  std::shared_ptr<fault_script> script_;
  ended_without_gil<mock_world> held_;
};

using testing::virtual_options;
using testing::virtual_reply;
using testing::virtual_world;

double seconds_of(nanoseconds span) {
  return std::chrono::duration<double>(span).count();
}

/// Returns the options of a virtual world from the settings of a runtime.
virtual_options options_of(const py::dict& settings, const std::optional<std::uint64_t>& seed,
                           const py::object& script) {
  virtual_options made;
  const auto shared = [](auto& of, track_limits& limits, sequencer_limits& sequencing, pending_limits& pending) {
    return std::tie(of.recovery, of.ordering, of.deadlines, of.strategy, of.fusion, limits, sequencing, pending);
  };
  const auto of_world = [&] { return shared(made, made.limits, made.sequencing, made.pending); };
  const auto of_runtime = [&](configuration& all) {
    return shared(all, all.limits, all.limits.sequencing, all.limits.pending);
  };
  configuration all;
  of_runtime(all) = of_world();
  all.mock.memory_bytes = made.memory_bytes;
  all = with_settings(std::move(all), settings);
  of_world() = of_runtime(all);
  made.memory_bytes = all.mock.memory_bytes;
  made.seed = seed;
  if (!script.is_none()) made.script = script.cast<std::shared_ptr<fault_script>>();
  return made;
}

/// A reply, with the world whose virtual time must pass until it arrives, and the tensors that the request writes.
struct shown_virtual_reply {
  virtual_reply what;
  py::object world; ///< Held, because waiting for the reply runs the world.
  py::object outputs;
};

class shown_virtual_world {
public:
  shown_virtual_world(int ranks, virtual_options options)
    : script_{options.script ? options.script : std::make_shared<fault_script>()} {
    options.script = script_;
    auto made = std::make_shared<postponing_world>();
    made->world = std::make_unique<virtual_world>(ranks, std::move(options));
    held_ = std::move(made);
  }
  shown_virtual_world(const shown_virtual_world&) = delete;
  shown_virtual_world& operator=(const shown_virtual_world&) = delete;
  ~shown_virtual_world() { close(); }

  [[nodiscard]] virtual_world& get() {
    if (!held_) throw exception{errc::stopping, "the virtual world has been closed: make another"};
    if (home_ != thread_bound_objects::of_this_thread())
      throw invalid("a virtual world belongs to the thread that made it: use it there");
    return *held_->world;
  }
  [[nodiscard]] const std::shared_ptr<fault_script>& script() const noexcept { return script_; }
  /// Returns the acknowledged epoch of requests to \p target in the lane \p name, or without a lane. 0: none yet.
  [[nodiscard]] epoch& acknowledged(int target, const py::object& name) {
    return acknowledged_[{target, py::cast<std::optional<std::string>>(name)}];
  }
  /// Ends the world. Only the thread that made it can do that: another thread leaves it to that thread.
  void close() noexcept {
    std::shared_ptr<void> last = std::move(held_);
    if (!last || home_ == thread_bound_objects::of_this_thread() || home_->give(last)) return;
    static auto* const left = new std::vector<std::shared_ptr<void>>;
    left->push_back(std::move(last));
    report_leak({.code = errc::stopping, .text = "a virtual world has not ended, because the thread that made it has"});
  }

private:
  struct postponing_world {
    postponed_releases postponed;
    std::unique_ptr<virtual_world> world;
  };

  std::shared_ptr<fault_script> script_;
  std::shared_ptr<thread_bound_objects> home_ = thread_bound_objects::of_this_thread();
  std::shared_ptr<postponing_world> held_;
  std::map<std::pair<int, std::optional<std::string>>, epoch> acknowledged_;
};

nanoseconds span_of(const py::object& seconds) {
  return duration_of(seconds, {}, "seconds");
}

virtual_reply ask(shown_virtual_world& of, const std::vector<asked_operation>& parts, const std::optional<int>& target,
                  const py::object& lane_name, const py::object& deadline) {
  virtual_world& in = of.get();
  const nanoseconds within = duration_of(deadline, world_default_deadline);
  if (!target) {
    world_request asked{.parts = {}, .epoch = in.epoch(), .deadline = within};
    for (const asked_operation& one : parts) asked.parts.push_back(one.what);
    return in.ask(std::move(asked));
  }
  rank_request asked{.what = parts.at(0).what, .deadline = within};
  const bool is_alone = lane_name.is_none() && std::holds_alternative<copy>(asked.what); // as in prepared_request
  asked.epoch = is_alone ? in.epoch() : of.acknowledged(*target, lane_name);
  if (!lane_name.is_none()) asked.lane = lane::named(py::cast<std::string>(lane_name));
  return in.ask(rank{*target}, std::move(asked));
}

void bind_replies_of_it(py::module_& module) {
  py::class_<shown_virtual_reply>(module, "VirtualReply",
                                  "The reply to a request in virtual time. Waiting for it lets virtual time pass.")
      .def(
          "done", [](const shown_virtual_reply& one) { return one.what.is_ready(); },
          "Returns whether the answer has arrived.")
      .def(
          "result",
          [](const shown_virtual_reply& one, const py::object& timeout) {
            if (!timeout.is_none() && one.what.wait_for(span_of(timeout)) != std::future_status::ready) {
              PyErr_SetString(PyExc_TimeoutError, "the request has not been answered within this virtual time");
              throw py::error_already_set{};
            }
            return shown_completion{one.what.get(), one.outputs};
          },
          py::arg("timeout") = py::none(), "Lets virtual time pass until the answer arrives.")
      .def(
          "exception",
          [](const shown_virtual_reply& one, const py::object& timeout) -> py::object {
            static_cast<void>(one.what.wait_for(duration_of(timeout, std::chrono::hours{1}, "timeout")));
            const outcome result = one.what.result();
            if (const error* failure = failure_of(result)) return to_python(*failure);
            return py::none();
          },
          py::arg("timeout") = py::none(), "As result(), and returns the error that it would raise, or None.")
      .def_readonly("out", &shown_virtual_reply::outputs, "The written tensors: undefined until the reply.");
}

void bind_virtual_worlds(py::module_& module) {
  bind_replies_of_it(module);
  py::class_<shown_virtual_world>(module, "VirtualWorld")
      .def(py::init([](int ranks, const py::dict& settings, const std::optional<std::uint64_t>& seed,
                       const py::object& script) {
             return std::make_unique<shown_virtual_world>(ranks, options_of(settings, seed, script));
           }),
           py::arg("ranks"), py::arg("settings"), py::arg("seed"), py::arg("script"))
      .def("size", [](shown_virtual_world& self) { return self.get().size(); })
      .def("local_ranks", [](shown_virtual_world& self) { return numbers_of(self.get().local_ranks()); })
      .def("epoch", [](shown_virtual_world& self) { return self.get().epoch().value(); })
      .def("status", [](shown_virtual_world& self) { return shown_event(self.get().status()); })
      .def(
          "events",
          [](shown_virtual_world& self, std::size_t first) {
            py::list all;
            const auto& events = self.get().events();
            for (; first < events.size(); ++first)
              all.append(py::make_tuple(seconds_of(events[first].at), shown_event(events[first].event)));
            return all;
          },
          py::arg("first") = 0)
      .def("operand",
           [](shown_virtual_world& self, int target, const py::object& what, const py::object& as, const py::object&,
              bool is_source) {
             return import_host_operand(self.get().device_of(rank{target}), what, optional_dtype_of(as),
                                        is_source ? dlpack_use::source : dlpack_use::any);
           })
      .def("empty",
           [](shown_virtual_world& self, int target, const std::vector<std::size_t>& shape, const py::object& type) {
             shaped_buffer made{.memory = {}, .type = dtype_of(type), .shape = shape, .is_virtual = true};
             made.memory = self.get().allocate(rank{target}, bytes_of(shape, made.type));
             return made;
           })
      .def(
          "ask",
          [](const py::object& self, const std::vector<asked_operation>& parts, const std::optional<int>& target,
             const py::object& lane_name, const py::object& deadline, const py::object& outputs) {
            release_due();
            auto& in = self.cast<shown_virtual_world&>();
            return shown_virtual_reply{ask(in, parts, target, lane_name, deadline), self, outputs};
          },
          py::arg("parts"), py::arg("rank"), py::arg("lane"), py::arg("deadline"), py::arg("out"))
      .def("acknowledge", [](shown_virtual_world& self, int target, const py::object& name,
                             std::uint64_t now) { self.acknowledged(target, name) = epoch{now}; })
      .def("now", [](shown_virtual_world& self) { return seconds_of(self.get().now()); })
      .def("advance", [](shown_virtual_world& self, const py::object& span) { self.get().advance(span_of(span)); })
      .def("run_until", [](shown_virtual_world& self, const std::function<bool()>& enough,
                           const py::object& at_most) { return self.get().run_until(enough, span_of(at_most)); })
      .def("run_until_ready",
           [](shown_virtual_world& self, std::uint64_t wanted, const py::object& at_most) {
             return self.get().run_until_ready(epoch{wanted}, span_of(at_most));
           })
      .def("jump", [](shown_virtual_world& self, const py::object& span) { self.get().jump(span_of(span)); })
      .def("end_rank", [](shown_virtual_world& self, int target) { self.get().end_rank(rank{target}); })
      .def("script", &shown_virtual_world::script)
      .def("close", &shown_virtual_world::close);
}

} // namespace

void bind_testing(py::module_& module) {
  bind_fault_scripts(module);
  py::class_<shown_mock_world, real_time_ptr<shown_mock_world>>(module, "MockWorld")
      .def(py::init<int, const py::dict&, const py::object&>(), py::arg("ranks"), py::arg("settings"),
           py::arg("script"))
      .def("world", [](shown_mock_world& self) { return show(self.get().world()); })
      .def("script", &shown_mock_world::script)
      .def("close", &shown_mock_world::close);
  bind_virtual_worlds(module);
}

} // namespace troupe::python
