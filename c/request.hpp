/// Sends requests, and keeps or passes on their answers.
#pragma once

#include "boundary.hpp"

#include <troupe/collectives/operation/request.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

namespace troupe::c {

/// Returns the options of a request. Errors: invalid_argument.
[[nodiscard]] request_options options_of(const troupe_request_options& given);
[[nodiscard]] inline call_site site_of(const troupe_request_options& given) noexcept {
  return {given.file, given.line};
}

/// Returns a promise whose outcome goes to the callback of \p options, if any, and then to the state of \p kept, if
/// that is not null. \p part_count: of a request in two steps. Errors: invalid_argument (two steps without a reply).
[[nodiscard]] reply_promise make_promise(const troupe_request_options& options, const troupe_reply* kept,
                                         std::size_t part_count);

} // namespace troupe::c

struct troupe_reply {
  class state;
  troupe_reply();
  std::shared_ptr<state> of;
};

namespace troupe::c {

/// A request that is ready to be sent: \p send does it, with a promise.
template <class Send>
struct prepared {
  std::size_t part_count;
  Send send;
};
template <class Send>
prepared(std::size_t, Send) -> prepared<Send>;

/// Asks for an answer to the callback of \p options and to a new reply in \p made. \p prepare gets the options, and
/// returns a `prepared` request: what \p prepare throws refuses the call, and what the sender throws is the answer.
/// Errors: invalid_argument (there is neither a callback nor a reply).
template <class Prepare>
troupe_code ask_for(const troupe_request_options* options, troupe_reply** made, troupe_error** to,
                    const Prepare& prepare) noexcept {
  if (made != nullptr) *made = nullptr;
  return attempt(to, [&] {
    const troupe_request_options given = read_optional(options, "options");
    if (made == nullptr && given.done == nullptr)
      throw invalid("the request has neither a reply nor a callback: give made, or options.done");
    auto request = prepare(given);
    std::unique_ptr<troupe_reply> reply;
    if (made != nullptr) reply = std::make_unique<troupe_reply>();
    reply_promise promise = make_promise(given, reply.get(), request.part_count);
    if (made != nullptr) *made = reply.release(); // before the callback can run
    try {
      request.send(promise);
    } catch (...) {
      promise.deliver(current_error());
    }
  });
}

} // namespace troupe::c
