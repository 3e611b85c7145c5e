#include "request.hpp"

#include "failure.hpp"
#include "released_gil.hpp"

#include <troupe/collectives/operation/captured_plan.hpp>

#include <pybind11/stl.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace troupe::python {

namespace py = pybind11;

namespace {

/// The events of a request. Both are the same event if both operands have the same stream.
struct fresh_events {
  shared_event read, written;
};

fresh_events record_now(const stream_source& read, const stream_source& written) {
  fresh_events made;
  std::optional<native_stream> seen;
  if (read) {
    const stream_ref from = read.now();
    made.read = record_event(read.where(), from);
    seen = from.native();
  }
  if (written) {
    const stream_ref from = written.now();
    made.written = seen == from.native() ? made.read : record_event(written.where(), from);
  }
  return made;
}

void set_ready(operand& which, const shared_event& at) {
  if (at) which.ready = at;
}

/// Calls \p visitor for the operand that is read from its stream, and for the one that is written.
template <class Operation, class Visitor>
void visit_streamed(Operation& what, const Visitor& visitor) {
  std::visit(
      [&](auto& one) {
        if constexpr (requires { one.send; })
          visitor(&one.send, &one.recv);
        else if constexpr (requires { one.memory; })
          visitor(&one.memory, static_cast<decltype(&one.memory)>(nullptr));
        else if constexpr (requires { one.from; })
          visitor(&one.from, &one.to);
      },
      what);
}

/// Reads the parameters of one operation.
class parameter_list {
public:
  explicit parameter_list(const py::dict& given) : given_{given} {}

  template <class Value>
  [[nodiscard]] Value get(const char* name, Value otherwise) const {
    if (!given_.contains(name) || given_[name].is_none()) return otherwise;
    return argument<Value>(name, given_[name], "a value of the type that the method's signature names");
  }
  [[nodiscard]] reduction op() const { return parse_reduction(get<std::string>("op", "sum")); }
  [[nodiscard]] rank rank_called(const char* name) const { return rank{get<int>(name, 0)}; }
  [[nodiscard]] bool staged() const { return get<bool>("staged", false); }
  [[nodiscard]] factor element() const {
    factor made;
    if (!given_.contains("factor") || given_["factor"].is_none()) return made;
    if (py::isinstance<given_operand>(given_["factor"]))
      return factor::on_device(given_["factor"].cast<const given_operand&>().memory);
    const auto bytes = py::cast<std::string>(py::object{given_["factor"]});
    std::memcpy(made.value.data(), bytes.data(), std::min(bytes.size(), made.value.size()));
    return made;
  }
  [[nodiscard]] partition parts(const char* name) const {
    using sizes = std::vector<std::size_t>;
    const auto given = get<std::pair<sizes, std::optional<sizes>>>(name, {});
    if (!given.second) return partition::packed(given.first);
    return {given.first, *given.second};
  }

private:
  const py::dict& given_;
};

operand operand_of(const given_operand* one) {
  return one == nullptr ? operand{} : operand{one->memory, one->ready};
}

std::size_t divided(std::size_t count, std::size_t size, const std::string& kind) {
  if (count % size != 0)
    throw invalid(kind + " divides its tensor among " + std::to_string(size) + " ranks, and " + std::to_string(count) +
                  " elements are not a multiple of that");
  return count / size;
}

void require_same_type(const std::string& kind, const given_operand& one, const given_operand& other) {
  if (one.type != other.type)
    throw invalid(kind + " has one dtype: the tensor is " + long_name_of(one.type) + " and out is " +
                  long_name_of(other.type));
}

} // namespace

bool asked_operation::has_streams() const noexcept {
  return read || written || std::ranges::any_of(parts, &asked_operation::has_streams);
}

operation asked_operation::ready_now(bool first) const {
  if (!has_streams()) return what;
  if (!parts.empty()) {
    group made;
    for (const asked_operation& one : parts) made.parts.push_back(one.ready_now(first));
    return made;
  }
  // On the first use, a tensor that was imported with an event has the right one.
  bool keeps_read = false, keeps_written = false;
  if (first)
    visit_streamed(what, [&](const operand* from, const operand* to) {
      keeps_read = from->ready != nullptr;
      keeps_written = to != nullptr && to->ready != nullptr;
    });
  const fresh_events now = record_now(keeps_read ? stream_source{} : read, keeps_written ? stream_source{} : written);
  operation made = what;
  visit_streamed(made, [&](operand* from, operand* to) {
    set_ready(*from, now.read);
    if (to != nullptr) set_ready(*to, now.written);
  });
  return made;
}

asked_operation make_operation(const std::string& kind, const given_operand* first, const given_operand* second,
                               std::size_t size, const py::dict& parameters) {
  const parameter_list given{parameters};
  if (first != nullptr && second != nullptr && kind != "copy") require_same_type(kind, *first, *second);
  const bool in_place = first == second;
  asked_operation made;
  if (first != nullptr) made.read = first->source;
  if (second != nullptr && !in_place) (first != nullptr ? made.written : made.read) = second->source;

  const given_operand* const any = first != nullptr ? first : second;
  if (kind == "barrier") {
    made.what = barrier{.commit = given.get<std::optional<std::uint64_t>>("commit", std::nullopt)};
    return made;
  }
  if (kind == "agree") {
    const auto value = given.get<std::string>("value", {});
    made.what = agree{parse_agreement_rule(given.get<std::string>("rule", "of_rank")), contribution{value}.bytes,
                      given.rank_called("root")};
    return made;
  }
  if (any == nullptr) throw invalid(kind + " needs a tensor");
  made.is_virtual = any->is_virtual;
  operand send = operand_of(first), recv = operand_of(second);
  if (first == nullptr) std::swap(made.read, made.written); // only the written operand exists
  const std::size_t count = any->count;
  const dtype type = any->type;
  const rank root = given.rank_called("root");
  // The part of a rank may be empty while other ranks stage theirs.
  const auto is_empty_on_host = [](const given_operand* one) {
    return one != nullptr && one->is_host_array && one->count == 0;
  };
  const bool staged = given.staged() || is_empty_on_host(first) || is_empty_on_host(second);

  if (kind == "all_reduce")
    made.what = all_reduce{send, recv, count, type, given.op(), given.element(), staged};
  else if (kind == "reduce")
    made.what = reduce{send, recv, count, type, given.op(), root, given.element(), staged};
  else if (kind == "broadcast")
    made.what = broadcast{send, recv, second != nullptr ? second->count : count, type, root, staged};
  else if (kind == "all_gather")
    made.what = all_gather{send, recv, count, type, staged};
  else if (kind == "reduce_scatter")
    made.what = reduce_scatter{send, recv, divided(count, size, kind), type, given.op(), given.element(), staged};
  else if (kind == "all_to_all")
    made.what = all_to_all{send, recv, divided(count, size, kind), type, staged};
  else if (kind == "gather")
    made.what = gather{send, recv, count, type, root, staged};
  else if (kind == "scatter")
    made.what = scatter{send, recv, second != nullptr ? second->count : divided(count, size, kind), type, root, staged};
  else if (kind == "all_gather_v")
    made.what = all_gather_v{send, recv, given.parts("recv_parts"), type, staged};
  else if (kind == "reduce_scatter_v")
    made.what = reduce_scatter_v{send, recv, given.parts("send_parts"), type, given.op(), given.element(), staged};
  else if (kind == "gather_v")
    made.what = gather_v{send, recv, given.parts("recv_parts"), type, root, staged};
  else if (kind == "scatter_v")
    made.what = scatter_v{send, recv, given.parts("send_parts"), type, root, staged};
  else if (kind == "all_to_all_v")
    made.what = all_to_all_v{send, recv, given.parts("send_parts"), given.parts("recv_parts"), type};
  else if (kind == "send")
    made.what = troupe::send{send, count, type, given.rank_called("peer"), given.get<int>("tag", 0)};
  else if (kind == "recv")
    made.what = troupe::recv{send, count, type, given.rank_called("peer"), given.get<int>("tag", 0)};
  else if (kind == "copy")
    made.what = copy{send, recv};
  else
    throw invalid("unknown operation '" + kind + "'");
  return made;
}

asked_operation make_call(std::shared_ptr<const rank_function> function,
                          const std::vector<const given_operand*>& arguments, const std::string& values) {
  call made{.function = std::move(function), .arguments = {}, .values = {}};
  for (const given_operand* one : arguments) {
    operand& last = made.arguments.emplace_back(operand_of(one));
    if (!last.ready && one->source) last.ready = record_event(one->source.where(), one->source.now());
  }
  const auto bytes = std::as_bytes(std::span{values});
  made.values.assign(bytes.begin(), bytes.end());
  return {.what = std::move(made)};
}

namespace {

std::string described(const prepared_request& one) {
  return one.parts().empty() ? "nothing" : describe(one.parts().front().what);
}

} // namespace

void bind_operations(py::module_& module) {
  py::class_<asked_operation, real_time_ptr<asked_operation>>(module, "Operation");
  module.def("operation", &make_operation, py::arg("kind"), py::arg("first").none(true), py::arg("second").none(true),
             py::arg("size"), py::arg("parameters"));
  py::class_<shown_function>(module, "Function");
  module.def("call", [](const shown_function& function, const std::vector<const given_operand*>& arguments,
                        const py::bytes& values) { return make_call(function.what, arguments, values); });
  module.def("replay", [](std::string name) {
    return asked_operation{.what = troupe::replay{std::make_shared<captured_plan>(std::move(name))}};
  });
  module.def("group", [](const std::vector<asked_operation>& parts) {
    asked_operation made;
    group all;
    for (const asked_operation& one : parts) all.parts.push_back(one.what);
    made.what = std::move(all);
    made.parts = parts;
    made.is_virtual = std::ranges::any_of(parts, &asked_operation::is_virtual);
    return made;
  });
  py::class_<prepared_request, real_time_ptr<prepared_request>>(
      module, "Request", "Operands and an operation, checked once and sent many times.")
      .def("ask", &prepared_request::ask, "Sends the request with the operands that were read when it was prepared.")
      .def(
          "ask_overlapped",
          [](prepared_request& one, std::optional<std::uintptr_t> stream) {
            std::optional<native_stream> yours;
            // NOLINTNEXTLINE(performance-no-int-to-ptr): a stream's handle, as Python passes it
            if (stream) yours = reinterpret_cast<native_stream>(*stream);
            return one.ask_overlapped(yours);
          },
          py::arg("stream") = py::none(),
          "Does the same in two steps, for a request to one rank: Reply.order() makes a stream wait for the operation "
          "on "
          "the GPU. stream: the handle of a CUDA stream of the rank's device, for whose present work the request also "
          "waits, on the GPU.")
      .def("__str__", &described)
      .def("__repr__", [](const prepared_request& one) { return "<troupe.Request: " + described(one) + ">"; });
}

prepared_request::prepared_request(troupe::world where, std::vector<asked_operation> parts, request_address to,
                                   nanoseconds deadline, held_object outputs)
  : world_{std::move(where)},
    parts_{std::move(parts)},
    to_{std::move(to)},
    deadline_{deadline},
    has_streams_{std::ranges::any_of(parts_, &asked_operation::has_streams)},
    outputs_{std::move(outputs)} {}

namespace {

/// Makes \p what wait for \p ready too. It does if any of its operands does. Returns false if it has none, as a
/// barrier.
bool attach(operation& what, const shared_event& ready) {
  const auto to = [&](auto& one) {
    const auto take = [&](operand& which) {
      if (which.ready || which.memory.size_bytes() == 0) return false;
      which.ready = ready;
      return true;
    };
    if constexpr (requires { one.parts; })
      return std::ranges::any_of(one.parts, [&](operation& part) { return attach(part, ready); });
    else if constexpr (requires { one.send; })
      return take(one.send) || take(one.recv);
    else if constexpr (requires { one.memory; })
      return take(one.memory);
    else if constexpr (requires { one.from; })
      return take(one.from) || take(one.to);
    else
      return false;
  };
  return std::visit(to, what);
}

} // namespace

std::shared_ptr<reply> prepared_request::ask_overlapped(std::optional<native_stream> stream) {
  if (!to_.target) throw exception{errc::unsupported, "a request to all ranks is answered in one step: ask one rank"};
  const std::shared_ptr<device>& on = world_.device_of(*to_.target);
  shared_event ready;
  if (stream) {
    const released_gil released; // a stream that is full makes the call wait
    ready = record_event(on, {*on, *stream});
  }
  return send(ready, on);
}

std::shared_ptr<reply> prepared_request::send(const shared_event& ready, std::shared_ptr<device> launched_on) {
  release_due();
  const bool first = std::exchange(first_, false);
  const auto part = [&](const asked_operation& one) { return has_streams_ ? one.ready_now(first) : one.what; };
  auto answered = reply::make(outputs_, std::move(launched_on));
  if (to_.target) {
    rank_request asked{.what = part(parts_.front()), .deadline = deadline_, .lane = to_.in};
    if (ready) static_cast<void>(attach(asked.what, ready));
    const bool is_alone = !to_.client && std::holds_alternative<copy>(asked.what);
    asked.epoch = is_alone ? world_.epoch() : *to_.acknowledged;
    if (to_.client && to_.client->number() == 0) // checked here: no code in Python runs from here on
      throw invalid("the lane was left by leave(): prepare the request again");
    ask_into(world_, *to_.target, std::move(asked), answered->make_reply_promise(),
             to_.client ? to_.client->number() : 0);
    return answered;
  }
  world_request asked{.parts = {}, .epoch = world_.epoch(), .deadline = deadline_};
  asked.parts.reserve(parts_.size());
  for (const asked_operation& one : parts_) asked.parts.push_back(part(one));
  ask_into(world_, std::move(asked), answered->make_reply_promise());
  return answered;
}

} // namespace troupe::python
