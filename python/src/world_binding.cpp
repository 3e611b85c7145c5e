#include "world_binding.hpp"

#include "capture_relay.hpp"
#include "failure.hpp"
#include "interruptible.hpp"
#include "python_function.hpp"
#include "released_gil.hpp"
#include "reply.hpp"
#include "runtime_binding.hpp"

#include <troupe/collectives/operation/captured_plan.hpp>

#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::python {

namespace py = pybind11;

request_address shown_world::address_of(rank target, const py::object& name) {
  if (name.is_none()) return {.target = target, .acknowledged = acknowledged(target, name)};
  const auto text = py::cast<std::string>(name);
  const lane in = lane::named(text);
  auto& client = lanes_[{target, text}];
  if (!client) client = std::make_shared<lane_client>(of_, target);
  return {.target = target, .client = client, .in = in, .acknowledged = acknowledged(target, name)};
}

const std::shared_ptr<epoch>& shown_world::acknowledged(rank target, const py::object& name) {
  auto& one = acknowledged_[{target, py::cast<std::optional<std::string>>(name)}];
  if (!one) one = std::make_shared<epoch>();
  return one;
}

void shown_world::acknowledge(rank target, const py::object& name, epoch now) {
  *acknowledged(target, name) = now;
}

void shown_world::leave(rank target, const std::string& name) {
  if (const auto found = lanes_.find({target, name}); found != lanes_.end()) {
    found->second->leave(); // now: prepared requests may hold the object
    lanes_.erase(found);
  }
  acknowledged_.erase({target, name});
}

void shown_world::register_function(std::string name, const py::object& what) {
  auto made = of_.register_function(name, make_rank_function(name, what));
  functions_.insert_or_assign(std::move(name), std::move(made));
}

std::shared_ptr<const rank_function> shown_world::function(const std::string& name) const {
  const auto found = functions_.find(name);
  return found != functions_.end() ? found->second : std::make_shared<const rank_function>(name);
}

std::shared_ptr<shown_world> show(troupe::world of) {
  const auto end = [](shown_world* one) {
    const released_gil released;
    ends_in_real_time<shown_world>{}(one);
  };
  return {new shown_world{std::move(of)}, end};
}

namespace {

using parts_list = std::vector<asked_operation>;

shaped_buffer make_buffer(buffer memory, const std::vector<std::size_t>& shape, dtype type) {
  return {.memory = std::move(memory), .type = type, .shape = shape};
}

/// Returns \p bytes as host memory of requests.
buffer host_memory(const troupe::world& where, std::vector<std::byte> bytes) {
  const auto held = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  return where.adopt_host(held->data(), held->size(), held);
}

/// Returns the name and world of each group. The world is None if none of its ranks is in this process.
py::dict split(shown_world& self, const py::dict& groups) {
  std::vector<rank_group> wanted;
  for (const auto& [name, members] : groups) {
    rank_group one{.name = py::cast<std::string>(py::str(name)), .members = {}};
    for (const int member : py::cast<std::vector<int>>(members)) one.members.emplace_back(member);
    wanted.push_back(std::move(one));
  }
  std::vector<split_world> made = call_interruptibly(
      [of = self.of(), wanted = std::move(wanted)]() mutable { return of.split(std::move(wanted)); });
  py::dict found;
  for (split_world& one : made)
    found[py::str(one.group.name)] = one.handle ? py::cast(show(std::move(*one.handle))) : py::object{py::none()};
  return found;
}

std::shared_ptr<captured_plan> capture(shown_world& self, const std::vector<const prepared_request*>& requests,
                                       const py::object& deadline, std::string name) {
  plan_steps steps;
  for (const prepared_request* one : requests) {
    steps.emplace_back();
    for (const asked_operation& part : one->parts()) steps.back().push_back(part.what);
  }
  plan_options options{.deadline = duration_of(deadline, world_default_deadline), .name = std::move(name)};
  return call_interruptibly([of = self.of(), steps = std::move(steps), options = std::move(options)]() mutable {
    return of.capture(std::move(steps), std::move(options));
  });
}

prepared_request prepare(shown_world& self, parts_list parts, const std::optional<int>& target, const py::object& in,
                         const py::object& deadline, const py::object& outputs) {
  request_address to = target ? self.address_of(rank{*target}, in) : request_address{};
  return {self.of(), std::move(parts), std::move(to), duration_of(deadline, world_default_deadline),
          outputs.is_none() ? held_object{} : held_object{outputs}};
}

/// Returns the request to the world, or to \p target if the other ranks live in other processes.
prepared_request replay(shown_world& self, const std::shared_ptr<captured_plan>& plan, const py::object& deadline,
                        const std::optional<int>& target, const py::object& in) {
  parts_list parts(self.of().local_ranks().size());
  for (asked_operation& one : parts) one.what = troupe::replay{plan};
  return prepare(self, std::move(parts), target, in, deadline, py::none());
}

} // namespace

void bind_worlds(py::module_& module) {
  py::class_<event_queue, std::shared_ptr<event_queue>>(module, "EventQueue")
      .def(py::init<>())
      .def("take",
           [](event_queue& queue) -> py::object {
             queue.require_own();
             const std::optional<world_event> next = [&queue] {
               const released_gil released;
               return queue.take();
             }();
             return next ? py::object{shown_event(*next)} : py::none();
           })
      .def("close", &event_queue::close);
  py::class_<captured_plan, std::shared_ptr<captured_plan>>(
      module, "Plan", "Captured requests, which World.replay() launches by one message.")
      .def_property_readonly("number", &captured_plan::number, "Identifies the plan in this process.")
      .def("__repr__", [](const captured_plan& one) { return "<troupe.Plan: " + std::to_string(one.number()) + ">"; });

  py::class_<shown_world, std::shared_ptr<shown_world>>(module, "World")
      .def("size", [](shown_world& self) { return self.of().size(); })
      .def("local_ranks", [](shown_world& self) { return numbers_of(self.of().local_ranks()); })
      .def("epoch", [](shown_world& self) { return self.of().epoch().value(); })
      .def("status", [](shown_world& self) { return shown_event(self.of().status()); })
      .def("ready",
           [](shown_world& self, std::uint64_t after) {
             return ask_for<world_event>([&](auto to) { self.of().wait_ready(epoch{after}, std::move(to)); });
           })
      .def("listen",
           [](shown_world& self, const std::shared_ptr<event_queue>& queue) {
             self.of().on_event([queue](const world_event& one) { queue->put(one); });
           })
      .def("operand",
           [](shown_world& self, int target, const py::object& what, const py::object& as, const py::object& streams,
              bool is_source) {
             return import_operand(self.of(), self.streams(), rank{target}, what, optional_dtype_of(as), streams,
                                   is_source ? dlpack_use::source : dlpack_use::any);
           })
      .def("operand_at",
           [](shown_world& self, int target, std::uintptr_t address, std::size_t count, const py::object& type,
              const py::object& owner) {
             // NOLINTNEXTLINE(performance-no-int-to-ptr): as Python passes addresses
             void* const first = reinterpret_cast<void*>(address);
             return import_address(self.of(), rank{target}, first, count, dtype_of(type), held_object{owner}.owner());
           })
      .def("device_operand_at",
           [](shown_world& self, int target, std::uintptr_t address, std::size_t count, const py::object& type,
              const py::object& owner) {
             return import_device_address(self.of(), rank{target}, address, count, dtype_of(type), held_object{owner});
           })
      .def("export_memory",
           [](shown_world& self, int where, const given_operand& what, const std::string& name) {
             return shown_remote{self.of().export_memory(rank{where}, what.memory, name), what.type};
           })
      .def("unexport", [](shown_world& self, const shown_remote& one) { self.of().unexport(one.what); })
      .def("find_memory",
           [](shown_world& self, int target, const std::string& name, const py::object& type,
              const py::object& deadline) {
             const auto ask = [&](auto to) {
               self.of().find_memory(rank{target}, name, duration_of(deadline, std::chrono::seconds{10}),
                                     std::move(to));
             };
             return ask_for<remote_buffer>(ask, optional_dtype_of(type));
           })
      .def("register_function", &shown_world::register_function)
      .def("function", [](shown_world& self, const std::string& name) { return shown_function{self.function(name)}; })
      .def("empty",
           [](shown_world& self, int target, const std::vector<std::size_t>& shape, const py::object& type) {
             const dtype is = dtype_of(type);
             return make_buffer(self.of().allocate(rank{target}, bytes_of(shape, is)), shape, is);
           })
      .def("empty_pinned",
           [](shown_world& self, const std::vector<std::size_t>& shape, const py::object& type) {
             const dtype is = dtype_of(type);
             return make_buffer(self.of().allocate_pinned(bytes_of(shape, is)), shape, is);
           })
      .def("empty_host",
           [](shown_world& self, const std::vector<std::size_t>& shape, const py::object& type) {
             const dtype is = dtype_of(type);
             return make_buffer(host_memory(self.of(), std::vector<std::byte>(bytes_of(shape, is))), shape, is);
           })
      .def("host_copy",
           [](shown_world& self, const given_operand& what) {
             const buffer& from = what.memory;
             if (!what.is_host_array && !from.on_host())
               throw invalid("write() takes host memory, and was given memory of a device: use copy()");
             return make_buffer(host_memory(self.of(), {from.data(), from.data() + from.size_bytes()}), what.shape,
                                what.type);
           })
      .def("empty_all",
           [](shown_world& self, const std::vector<std::size_t>& shape, const py::object& type) {
             const dtype is = dtype_of(type);
             std::vector<shaped_buffer> made;
             for (buffer& one : self.of().allocate_all(bytes_of(shape, is)))
               made.push_back(make_buffer(std::move(one), shape, is));
             return made;
           })
      .def("register_memory",
           [](shown_world& self, std::size_t size) {
             call_interruptibly([of = self.of(), size]() mutable { of.register_memory(size); });
           })
      .def("release_unused",
           [](shown_world& self) {
             return call_interruptibly([of = self.of()]() mutable { return of.release_unused(); });
           })
      .def("suspend",
           [](shown_world& self) { return call_interruptibly([of = self.of()]() mutable { return of.suspend(); }); })
      .def("resume", [](shown_world& self) { call_interruptibly([of = self.of()]() mutable { of.resume(); }); })
      .def("prepare", &prepare, py::arg("parts"), py::arg("rank"), py::arg("lane"), py::arg("deadline"), py::arg("out"))
      .def("acknowledge", [](shown_world& self, int target, const py::object& name,
                             std::uint64_t now) { self.acknowledge(rank{target}, name, epoch{now}); })
      .def("leave", [](shown_world& self, int target, const std::string& name) { self.leave(rank{target}, name); })
      .def("leave_world",
           [](shown_world& self, bool renumbers) {
             return ask_for<leave_reply>([&](auto to) { self.of().leave(renumbers, std::move(to)); });
           })
      .def("split", &split)
      .def("capture", &capture, py::arg("requests"), py::arg("deadline") = py::none(), py::arg("name") = "")
      .def("begin_capture",
           [](shown_world& self, std::uintptr_t stream, std::string name, const py::object& deadline) {
             // NOLINTNEXTLINE(performance-no-int-to-ptr): a stream's handle, as Python passes it
             return capture_relay::begin(self.of(), reinterpret_cast<native_stream>(stream), std::move(name),
                                         duration_of(deadline, std::chrono::minutes{1}));
           })
      .def("prepare_replay", &replay, py::arg("plan"), py::arg("deadline"), py::arg("rank"), py::arg("lane"))
      .def("stop", [](shown_world& self) { call_interruptibly([of = self.of()]() mutable { of.stop(); }); });
}

} // namespace troupe::python
