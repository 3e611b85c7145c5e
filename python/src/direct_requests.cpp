#include "direct_requests.hpp"

#include "../troupe/torch/native/requests.h"
#include "operand.hpp"
#include "reply.hpp"
#include "request.hpp"
#include "world_binding.hpp"

#include <troupe/runtime/interop/ask_into.hpp>

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

/// A lane of a rank whose device is simulated, so that requests use host memory in place.
struct direct_lane {
  std::shared_ptr<shown_world> shown; ///< Destroyed last: it is destroyed without the GIL.
  rank target;
  request_address to;
};

using direct_reply = std::shared_ptr<reply>;

void* open_lane(const std::shared_ptr<shown_world>& shown, rank target, const char* name) {
  if (shown->of().device_of(target)->api().name() != "mock") return nullptr;
  return new direct_lane{shown, target, shown->address_of(target, py::str(name))};
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
    const auto memory = [&](void* at, std::uint64_t count) {
      if (at == nullptr) return operand{};
      return operand{import_address(where, to.target, at, count, static_cast<dtype>(asked->type), owner).memory};
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
    auto answered = std::make_unique<direct_reply>(reply::make({}));
    ask_into(where, to.target, std::move(made), (*answered)->make_reply_promise(), to.to.client->number());
    return answered.release();
  });
}

std::int32_t state_of(const reply& one) noexcept {
  if (!one.is_done()) return TROUPE_REPLY_PENDING;
  return failure_of(one.result()) == nullptr ? TROUPE_REPLY_SUCCEEDED : TROUPE_REPLY_FAILED;
}

std::int32_t await_reply(void* reply, std::int64_t at_most_ns, std::int32_t polls) noexcept {
  python::reply& one = **static_cast<direct_reply*>(reply);
  try {
    one.require_own();
    static_cast<void>(one.wait(polls != 0 ? result_spin() : nanoseconds{0},
                               later(std::chrono::steady_clock::now(), nanoseconds{at_most_ns})));
    return state_of(one);
  } catch (const std::exception&) {
    return TROUPE_REPLY_UNKNOWN;
  }
}

constexpr troupe_requests table{
    .version = TROUPE_REQUESTS_VERSION,
    .size = sizeof(troupe_requests),
    .open =
        [](void* world, std::int32_t target, const char* name) {
          return null_if_refused([&] {
            const py::handle given{static_cast<PyObject*>(world)};
            return open_lane(given.cast<std::shared_ptr<shown_world>>(), rank{target}, name);
          });
        },
    .open_beside =
        [](void* lane, const char* name) {
          return null_if_refused([&] {
            const auto& beside = *static_cast<direct_lane*>(lane);
            return open_lane(beside.shown, beside.target, name);
          });
        },
    .close = [](void* lane) { delete static_cast<direct_lane*>(lane); },
    .ask = &ask_directly,
    .state = [](const void* reply) { return state_of(**static_cast<const direct_reply*>(reply)); },
    .wait = &await_reply,
    .release = [](void* reply) { delete static_cast<direct_reply*>(reply); },
    .shown = [](void* reply) -> void* { return py::cast(*static_cast<direct_reply*>(reply)).release().ptr(); },
};

} // namespace

void bind_direct_requests(py::module_& module) {
  module.attr("requests") = py::capsule(&table, TROUPE_REQUESTS_CAPSULE);
}

} // namespace troupe::python
