#include "runtime_binding.hpp"
#include "failure.hpp"
#include "reply.hpp"
#include "world_binding.hpp"

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/processes/controller.hpp>
#include <troupe/runtime/configuration/gathered_settings.hpp>
#include <troupe/runtime/configuration/settings.hpp>
#include <troupe/runtime/runtime.hpp>
#include <troupe/testing/fault_script.hpp>

#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::python {

namespace py = pybind11;

namespace {

const setting& setting_called(const std::string& name) {
  for (const setting& one : all_settings()) {
    std::string as_keyword{one.name};
    std::ranges::replace(as_keyword, '.', '_');
    if (one.name == name || as_keyword == name) return one;
  }
  return find_setting(name); // throws, with the nearest name
}

std::string text_of(const setting& which, const py::handle& value) {
  if (py::isinstance<py::str>(value)) return py::cast<std::string>(value);
  if (py::isinstance<py::bool_>(value)) {
    const bool is_set = py::cast<bool>(value);
    if (which.form == "yes|no") return is_set ? "yes" : "no";
    return is_set ? "1" : "0";
  }
  const bool is_number = py::isinstance<py::int_>(value) || py::isinstance<py::float_>(value);
  if (which.form == "DURATION" && (is_number || py::hasattr(value, "total_seconds"))) {
    const nanoseconds span = duration_of(py::reinterpret_borrow<py::object>(value), {}, which.name.data());
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

configuration gathered_settings_of(const py::dict& given, const py::object& file, const py::object& variables) {
  const auto path = file.is_none() ? std::nullopt : std::optional{py::cast<std::string>(py::str(file))};
  if (variables.is_none())
    return with_settings(path ? configuration::load(*path) : configuration::from_environment(), given);
  const auto all = py::cast<std::map<std::string, std::string>>(py::dict{variables});
  std::vector<std::string> own;
  for (const auto& [name, value] : all)
    if (name.starts_with("TROUPE_")) own.push_back(name);
  check_variable_names(own);
  const variable_lookup lookup = [&all](const std::string& name) -> std::optional<std::string> {
    const auto found = all.find(name);
    return found != all.end() && !found->second.empty() ? std::optional{found->second} : std::nullopt;
  };
  configuration settings = gather_settings(lookup, path).settings();
  check(settings);
  return with_settings(std::move(settings), given);
}

std::vector<int> numbers_of(const std::vector<rank>& all) {
  std::vector<int> made;
  for (const rank one : all) made.push_back(one.value());
  return made;
}

namespace {

py::tuple numbers(const std::vector<rank>& all) {
  return py::tuple(py::cast(numbers_of(all)));
}

/// Returns the arguments of the Python class ResumePoint for each lane.
py::list shown_points(const resume_points& all) {
  py::list made;
  for (const resume_point& one : all.lanes) {
    py::list later;
    for (const incomplete_operation& each : one.later)
      later.append(py::make_tuple(each.position, numbers(each.succeeded), numbers(each.unknown)));
    py::list agreed;
    for (const auto& value : one.agreed) agreed.append(shown(value));
    made.append(py::make_tuple(one.where ? py::object{py::str(one.where->name())} : py::object{py::none()},
                               one.complete, one.commit, one.incomplete, py::tuple(later), py::tuple(agreed),
                               one.agreed_unlisted));
  }
  return made;
}

void add_points(py::dict& made, const std::shared_ptr<const resume_points>& all) {
  made["resume"] = all ? py::object{shown_points(*all)} : py::object{py::none()};
  made["counted_from"] = all ? py::object{py::int_(all->counted_from.value())} : py::object{py::none()};
  made["has_survivors"] = !all || all->has_survivors;
}

} // namespace

py::dict shown_event(const world_event& one) {
  py::list lost;
  for (const lost_rank& each : one.lost) lost.append(each.origin.value());
  py::dict made;
  made["phase"] = std::string{to_string(one.phase)};
  made["epoch"] = one.epoch.value();
  made["world_size"] = one.world_size;
  made["local_ranks"] = numbers(one.local_ranks);
  made["origins"] = numbers(one.origins);
  made["lost"] = py::tuple(lost);
  add_points(made, one.resume);
  const one_shot_status* kernels = one.one_shot.get();
  made["one_shot"] =
      kernels == nullptr
          ? py::object{py::none()}
          : py::object{py::make_tuple(kernels->part_bytes, kernels->blocks, kernels->scratch_bytes, kernels->why)};
  made["reason"] = to_python(one.reason);
  made["text"] = describe(one);
  return made;
}

namespace {

using shown_runtime = ended_without_gil<runtime>;

real_time_ptr<shown_runtime> make_runtime(const py::dict& given, const py::object& file, const py::object& faults,
                                          const py::object& variables) {
  configuration start = gathered_settings_of(given, file, variables);
  if (!faults.is_none()) start.faults = faults.cast<std::shared_ptr<testing::fault_script>>();
  return real_time_ptr<shown_runtime>{new shown_runtime{"the runtime", std::move(start)}};
}

std::shared_ptr<shown_world> form_world(shown_runtime& self, const std::optional<py::bytes>& id,
                                        const std::vector<int>& devices) {
  world_options options;
  for (const int one : devices) options.devices.emplace_back(one);
  if (id) {
    const auto text = static_cast<std::string>(*id);
    unique_id one{};
    if (text.size() != one.bytes.size())
      throw invalid("the id has " + std::to_string(text.size()) + " bytes, and a world's id has " +
                    std::to_string(one.bytes.size()) + ": pass what make_unique_id() returned in rank 0");
    std::ranges::transform(text, one.bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
    options.id = one;
  }
  std::stop_source interrupted;
  options.stop = interrupted.get_token();
  return show(await_or_abandon(self.get().form_world_async(options), [&](std::future<world> forming) {
    constexpr std::chrono::seconds most{1}; // a communicator that does not end is left to deadlines.abort
    interrupted.request_stop();
    if (forming.wait_for(most) == std::future_status::timeout) return;
    try {
      forming.get().stop();           // it had just formed
    } catch (const std::exception&) { // it ends, or says why it cannot
    }
  }));
}

} // namespace

void bind_runtimes(py::module_& module) {
  py::class_<shown_runtime, real_time_ptr<shown_runtime>>(module, "Runtime")
      .def(py::init(&make_runtime), py::arg("settings"), py::arg("config"), py::arg("faults"), py::arg("environment"))
      .def("form_world", &form_world, py::arg("id"), py::arg("devices"))
      .def("make_unique_id",
           [](shown_runtime& self) {
             const unique_id made = self.get().make_unique_id();
             return py::bytes{reinterpret_cast<const char*>(made.bytes.data()), made.bytes.size()}; // NOLINT: as text
           })
      .def("describe", [](shown_runtime& self) { return self.get().describe(); })
      .def(
          "release_unused", [](shown_runtime& self) { return self.get().release_unused(); },
          py::call_guard<released_gil>())
      .def("settings",
           [](shown_runtime& self) {
             py::dict all;
             for (const setting& one : all_settings())
               all[py::str(std::string{one.name})] = one.text(self.get().settings());
             return all;
           })
      .def("close", &shown_runtime::close);
}

namespace {

using shown_controller = ended_without_gil<controller>;

/// Checks for signals (Ctrl-C) at intervals. Returns false once another thread has closed the controller.
bool wait_for(const shown_controller& self, const py::object& timeout) {
  const auto until = timeout.is_none() ? time_point::max()
                                       : later(std::chrono::steady_clock::now(), duration_of(timeout, {}, "timeout"));
  static_cast<void>(self.get());
  bool is_over = false;
  wait_interruptibly([&](nanoseconds longest) {
    const std::shared_ptr<controller> one = self.share();
    const auto left = std::max(until - std::chrono::steady_clock::now(), time_point::duration{0});
    is_over = one && one->wait(std::min<nanoseconds>(left, longest));
    return is_over || !one || left == time_point::duration{0};
  });
  return is_over;
}

std::unique_ptr<shown_controller> make_controller(int processes, std::string host, std::uint16_t port,
                                                  std::string token, const std::optional<std::string>& certificates,
                                                  const std::string& policy, int smallest,
                                                  std::optional<std::size_t> rebuilds, const py::object& gather,
                                                  const py::object& suspicion, std::optional<std::size_t> lead) {
  controller_options options;
  options.sequencing = find_order_limits(process_variables());
  options.sequencing.lead = lead.value_or(options.sequencing.lead);
  options.host = std::move(host);
  options.port = port;
  options.terms.world_size = processes;
  options.terms.recovery.policy = parse_recovery_policy(policy);
  options.terms.recovery.smallest = smallest;
  options.terms.token = std::move(token);
  options.terms.recovery.rebuilds = rebuilds.value_or(options.terms.recovery.rebuilds);
  options.terms.gather = duration_of(gather, options.terms.gather, "gather");
  options.terms.suspicion = duration_of(suspicion, options.terms.suspicion, "suspicion");
  options.terms.heartbeat = std::min<nanoseconds>(options.terms.heartbeat, options.terms.suspicion / 4);
  if (certificates) options.certificates = controller_credentials(*certificates);
  return std::make_unique<shown_controller>("the controller", std::move(options));
}

} // namespace

void bind_controllers(py::module_& module) {
  py::class_<shown_controller>(module, "Controller")
      .def(py::init(&make_controller), py::arg("processes"), py::arg("host"), py::arg("port"), py::arg("token"),
           py::arg("certificates"), py::arg("policy"), py::arg("smallest"), py::arg("rebuilds"), py::arg("gather"),
           py::arg("suspicion"), py::arg("lead"))
      .def("address", [](const shown_controller& self) { return self.get().address(); })
      .def("process_ended", [](const shown_controller& self, std::string name, std::int64_t pid,
                               std::string how) { self.get().process_ended(std::move(name), pid, std::move(how)); })
      .def("stop", [](const shown_controller& self) { self.get().stop(); })
      .def("wait", &wait_for)
      .def("reason", [](const shown_controller& self) { return to_python(self.get().reason()); })
      .def("close", &shown_controller::close);
}

} // namespace troupe::python
