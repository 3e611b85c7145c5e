#include "request.hpp"

#include <troupe/runtime/interop/ask_into.hpp>

#include <algorithm>
#include <variant>

namespace troupe::python {

prepared_request::prepared_request(troupe::world where, std::vector<asked_operation> parts, request_address to,
                                   nanoseconds deadline, bool is_retry_safe, held_object outputs)
  : world_{std::move(where)},
    parts_{std::move(parts)},
    to_{std::move(to)},
    deadline_{deadline},
    is_retry_safe_{is_retry_safe},
    has_streams_{std::ranges::any_of(parts_, &asked_operation::has_streams)},
    outputs_{std::move(outputs)} {}

std::shared_ptr<reply> prepared_request::ask() {
  release_due();
  const bool first = std::exchange(first_, false);
  const auto part = [&](const asked_operation& one) { return has_streams_ ? one.ready_now(first) : one.what; };
  auto answered = reply::make(outputs_);
  if (to_.whom) {
    rank_request asked{.what = part(parts_.front()), .deadline = deadline_, .lane = to_.in};
    const bool is_alone = !to_.client && std::holds_alternative<copy>(asked.what);
    asked.epoch = is_alone ? world_.epoch() : *to_.acknowledged;
    asked.retry_safe = is_retry_safe_;
    ask_into(world_, *to_.whom, std::move(asked), answered->make_reply_promise(),
             to_.client ? to_.client->client() : 0);
    return answered;
  }
  // The world is asked for its actor each time: the handles of one that has ended are gone, and must not be kept here.
  world_request asked{.parts = {}, .epoch = world_.epoch(), .deadline = deadline_};
  asked.parts.reserve(parts_.size());
  for (const asked_operation& one : parts_) asked.parts.push_back(part(one));
  asked.retry_safe = is_retry_safe_;
  ask_into(world_, std::move(asked), answered->make_reply_promise());
  return answered;
}

} // namespace troupe::python
