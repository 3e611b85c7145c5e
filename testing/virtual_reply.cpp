#include <troupe/device/error.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/testing/virtual_reply.hpp>

#include <mutex>
#include <optional>

namespace troupe::testing {

struct virtual_reply::state {
  std::mutex mutex; ///< Needed by the condition, and protects against a mistaken call from a real thread.
  condition changed;
  std::optional<outcome> result;
  time_point at;
};

std::pair<reply_promise, virtual_reply> virtual_reply::make() {
  auto to = std::make_shared<state>();
  return {make_reply_promise([to](outcome result) {
            const std::lock_guard lock{to->mutex};
            to->result = std::move(result);
            to->at = steady_now();
            to->changed.notify_all();
          }),
          virtual_reply{to}};
}

bool virtual_reply::is_ready() const {
  const std::lock_guard lock{state_->mutex};
  return state_->result.has_value();
}

outcome virtual_reply::result() const {
  const std::lock_guard lock{state_->mutex};
  if (!state_->result)
    throw exception{errc::invalid_argument, "the request has not been answered yet: let virtual time pass first, by "
                                            "advance(), run_until() or get()"};
  return *state_->result;
}

time_point virtual_reply::answered_at() const {
  static_cast<void>(result());
  const std::lock_guard lock{state_->mutex};
  return state_->at;
}

std::future_status virtual_reply::wait_for(nanoseconds at_most) const {
  std::unique_lock lock{state_->mutex};
  const auto is_there = [this] { return state_->result.has_value(); };
  return state_->changed.wait_for(lock, at_most, is_there) ? std::future_status::ready : std::future_status::timeout;
}

completion virtual_reply::get() const {
  if (wait_for(std::chrono::hours{1}) == std::future_status::timeout)
    throw exception{errc::deadline_exceeded, "the request has not been answered within an hour of virtual time"};
  outcome seen = result();
  if (const error* failure = failure_of(seen)) throw exception{*failure};
  return std::get<completion>(seen);
}

} // namespace troupe::testing
