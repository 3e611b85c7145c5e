#include "direct_requests.hpp"

#include "../troupe/torch/native/requests.h"
#include "operand.hpp"
#include "reply.hpp"
#include "request.hpp"
#include "world_binding.hpp"

#include <troupe/device/driver.hpp>
#include <troupe/device/stream.hpp>
#include <troupe/runtime/interop/ask_into.hpp>
#include <troupe/runtime/interop/views.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace troupe::python {

namespace py = pybind11;

namespace {

static_assert(
    static_cast<int>(dtype::u8) == TROUPE_REQUEST_U8 && static_cast<int>(dtype::i8) == TROUPE_REQUEST_I8 &&
    static_cast<int>(dtype::i32) == TROUPE_REQUEST_I32 && static_cast<int>(dtype::u32) == TROUPE_REQUEST_U32 &&
    static_cast<int>(dtype::i64) == TROUPE_REQUEST_I64 && static_cast<int>(dtype::u64) == TROUPE_REQUEST_U64 &&
    static_cast<int>(dtype::f16) == TROUPE_REQUEST_F16 && static_cast<int>(dtype::f32) == TROUPE_REQUEST_F32 &&
    static_cast<int>(dtype::f64) == TROUPE_REQUEST_F64 && static_cast<int>(dtype::bf16) == TROUPE_REQUEST_BF16 &&
    static_cast<int>(dtype::f8e4m3) == TROUPE_REQUEST_F8E4M3 &&
    static_cast<int>(dtype::f8e5m2) == TROUPE_REQUEST_F8E5M2);
static_assert(static_cast<int>(reduction::sum) == TROUPE_REQUEST_SUM &&
              static_cast<int>(reduction::prod) == TROUPE_REQUEST_PROD &&
              static_cast<int>(reduction::min) == TROUPE_REQUEST_MIN &&
              static_cast<int>(reduction::max) == TROUPE_REQUEST_MAX &&
              static_cast<int>(reduction::avg) == TROUPE_REQUEST_AVG);

/// A lane of a rank. Requests use memory of its GPU, or, if its device is simulated, host memory in place.
struct direct_lane {
  std::shared_ptr<shown_world> shown; ///< Destroyed last: it is destroyed without the GIL.
  rank target;
  request_address to;
  bool on_gpu;
};

using direct_reply = std::shared_ptr<reply>;

void* open_lane(const std::shared_ptr<shown_world>& shown, rank target, const char* name, bool on_gpu) {
  const bool is_simulated = shown->of().device_of(target)->api().name() == "mock";
  if (is_simulated == on_gpu) return nullptr;
  return new direct_lane{shown, target, shown->address_of(target, py::str(name)), on_gpu};
}

native_stream stream_of(void* handle) noexcept {
  return static_cast<native_stream>(handle);
}

bool is_captured(device& on, native_stream stream) {
  return on.api().status_of_capture(on.id(), stream) != capture_status::none;
}

/// Calls \p make and returns its result; null if it throws.
template <class Make>
void* null_if_refused(const Make& make) noexcept {
  try {
    return make();
  } catch (const std::exception&) {
    return nullptr;
  }
}

operation operation_of(const troupe_request& asked, operand send, operand recv) {
  const auto type = static_cast<dtype>(asked.type);
  const auto op = static_cast<reduction>(asked.reduction);
  const rank peer{asked.peer};
  switch (asked.kind) {
    case TROUPE_REQUEST_ALL_REDUCE: return all_reduce{send, recv, asked.source_count, type, op};
    case TROUPE_REQUEST_REDUCE: return reduce{send, recv, asked.source_count, type, op, peer};
    case TROUPE_REQUEST_BROADCAST: return broadcast{send, recv, asked.result_count, type, peer};
    case TROUPE_REQUEST_ALL_GATHER: return all_gather{send, recv, asked.source_count, type};
    case TROUPE_REQUEST_REDUCE_SCATTER: return reduce_scatter{send, recv, asked.result_count, type, op};
    case TROUPE_REQUEST_SEND: return troupe::send{send, asked.source_count, type, peer, asked.tag};
    case TROUPE_REQUEST_RECV: return troupe::recv{recv, asked.result_count, type, peer, asked.tag};
    default: return barrier{};
  }
}

void* ask_directly(void* lane, const troupe_request* asked) noexcept {
  release_due();
  return null_if_refused([&]() -> void* {
    const std::shared_ptr<void> owner{asked->owner,
                                      [release = asked->release](void* one) { release_later(release, one); }};
    auto& to = *static_cast<direct_lane*>(lane);
    const troupe::world& where = to.shown->of();
    std::shared_ptr<device> on;
    shared_event ready;
    if (to.on_gpu) {
      on = where.device_of(to.target);
      if (is_captured(*on, stream_of(asked->stream))) return nullptr;
      ready = record_event(on, {*on, stream_of(asked->stream)});
    }
    const auto memory = [&](void* at, std::uint64_t count) {
      if (at == nullptr) return operand{};
      const auto type = static_cast<dtype>(asked->type);
      if (!to.on_gpu) return operand{import_address(where, to.target, at, count, type, owner).memory};
      return operand{adopt_elements(where, to.target, at, count, type, owner).memory, ready};
    };
    const operand send = memory(asked->source, asked->source_count);
    // One range at the beginning of the other, as in an all_gather in place at rank 0, is another operand.
    const bool is_in_place = asked->result == asked->source && asked->result_count == asked->source_count;
    const operand recv = is_in_place ? send : memory(asked->result, asked->result_count);
    rank_request made{.what = barrier{}, .deadline = nanoseconds{asked->deadline_ns}, .lane = to.to.in};
    if (asked->kind == TROUPE_REQUEST_ALL_TO_ALL) {
      const auto parts = [&](const std::uint64_t* counts) {
        return partition::packed(std::vector<std::size_t>(counts, counts + where.size()));
      };
      made.what = all_to_all_v{send, recv, parts(asked->send_counts), parts(asked->recv_counts),
                               static_cast<dtype>(asked->type)};
    } else {
      made.what = operation_of(*asked, send, recv);
    }
    made.epoch = *to.to.acknowledged;
    if (to.to.client->number() == 0) return nullptr; // the lane was left
    auto answered = std::make_unique<direct_reply>(reply::make({}, std::move(on)));
    ask_into(where, to.target, std::move(made), (*answered)->make_reply_promise(), to.to.client->number());
    return answered.release();
  });
}

std::int32_t state_of(const reply& one) noexcept {
  if (!one.is_done()) return TROUPE_REPLY_PENDING;
  return failure_of(one.result()) == nullptr ? TROUPE_REPLY_SUCCEEDED : TROUPE_REPLY_FAILED;
}

/// Calls \p look and returns its result; UNKNOWN if it throws.
template <class Look>
std::int32_t unknown_if_it_fails(const Look& look) noexcept {
  try {
    return look();
  } catch (const std::exception&) {
    return TROUPE_REPLY_UNKNOWN;
  }
}

bool await_step(awaited& step, std::int64_t at_most_ns, std::int32_t polls) {
  step.require_own();
  return step.wait(polls != 0 ? result_spin() : nanoseconds{0},
                   later(std::chrono::steady_clock::now(), nanoseconds{at_most_ns}));
}

std::int32_t await_reply(void* reply, std::int64_t at_most_ns, std::int32_t polls) noexcept {
  return unknown_if_it_fails([&] {
    python::reply& one = **static_cast<direct_reply*>(reply);
    static_cast<void>(await_step(one, at_most_ns, polls));
    return state_of(one);
  });
}

std::int32_t order_behind(void* reply, void* stream, std::int64_t at_most_ns, std::int32_t polls) noexcept {
  release_due();
  return unknown_if_it_fails([&]() -> std::int32_t {
    python::reply& one = **static_cast<direct_reply*>(reply);
    launch_step& launch = *one.launch();
    if (!one.is_done()) {
      if (is_captured(launch.where(), stream_of(stream))) return TROUPE_REPLY_UNKNOWN;
      if (!await_step(launch, at_most_ns, polls)) return TROUPE_REPLY_PENDING;
    }
    if (one.is_done()) return state_of(one);
    if (const shared_event behind = launch.behind()) stream_ref{launch.where(), stream_of(stream)}.wait(*behind);
    return one.is_done() ? state_of(one) : TROUPE_REPLY_SUCCEEDED;
  });
}

std::int32_t tell_of_step(void* reply, void (*told)(void*), void* what) noexcept {
  python::reply& one = **static_cast<direct_reply*>(reply);
  try {
    return (one.launch() ? one.launch()->tell(told, what) : one.tell(told, what)) ? 1 : 0;
  } catch (const std::exception&) {
    return 0;
  }
}

constexpr troupe_requests table{
    .version = TROUPE_REQUESTS_VERSION,
    .size = sizeof(troupe_requests),
    .open =
        [](void* world, std::int32_t target, const char* name, std::int32_t on_gpu) {
          return null_if_refused([&] {
            const py::handle given{static_cast<PyObject*>(world)};
            return open_lane(given.cast<std::shared_ptr<shown_world>>(), rank{target}, name, on_gpu != 0);
          });
        },
    .open_beside =
        [](void* lane, const char* name) {
          return null_if_refused([&] {
            const auto& beside = *static_cast<direct_lane*>(lane);
            return open_lane(beside.shown, beside.target, name, beside.on_gpu);
          });
        },
    .close = [](void* lane) { delete static_cast<direct_lane*>(lane); },
    .ask = &ask_directly,
    .state = [](const void* reply) { return state_of(**static_cast<const direct_reply*>(reply)); },
    .wait = &await_reply,
    .order = &order_behind,
    .tell = &tell_of_step,
    .release = [](void* reply) { delete static_cast<direct_reply*>(reply); },
    .shown = [](void* reply) -> void* { return py::cast(*static_cast<direct_reply*>(reply)).release().ptr(); },
};

} // namespace

void bind_direct_requests(py::module_& module) {
  module.attr("requests") = py::capsule(&table, TROUPE_REQUESTS_CAPSULE);
}

} // namespace troupe::python
