/// Converts troupe's errors to caf::error and back: at an actor's boundary every failure is a caf::error.
#pragma once

#include <troupe/actors/caf/messages.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <caf/error.hpp>

#include <memory>
#include <utility>

namespace troupe {

/// Returns a caf::error that carries \p why completely.
[[nodiscard]] caf::error to_caf(const error& why);

/// Returns the troupe error that \p failure carries. A timeout that the client has set in CAF becomes
/// errc::deadline_exceeded, and CAF's other errors (the actor has ended) become errc::abandoned. Call it in error
/// handlers of requests.
[[nodiscard]] error from_caf(const caf::error& failure);

/// Returns a promise that delivers its outcome through \p to.
[[nodiscard]] reply_promise answer_to(compat::foreign_reply to);

/// Returns a promise for the request that \p self is handling. Threads: any thread may deliver it.
template <class Self>
[[nodiscard]] reply_promise take_answer(Self* self) {
  return answer_to(compat::foreign_reply{self});
}

/// Returns a promise that delivers a value or an error through \p to.
template <class Value>
[[nodiscard]] std::shared_ptr<value_promise<Value>> value_promise_to(compat::foreign_reply to) {
  auto reply = std::make_shared<compat::foreign_reply>(std::move(to));
  return std::make_shared<value_promise<Value>>([reply](std::variant<Value, error> result) {
    if (const error* failure = std::get_if<error>(&result))
      reply->deliver(to_caf(*failure));
    else
      reply->deliver(std::get<Value>(std::move(result)));
  });
}
/// Returns a value promise for the request that \p self is handling.
template <class Value, class Self>
[[nodiscard]] std::shared_ptr<value_promise<Value>> take_value_promise(Self* self) {
  return value_promise_to<Value>(compat::foreign_reply{self});
}

} // namespace troupe
