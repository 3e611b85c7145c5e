#include <troupe/actors/caf/actor_error.hpp>

#include <caf/message.hpp>
#include <caf/sec.hpp>

namespace troupe {

caf::error to_caf(const error& why) {
  // All errors have the same CAF code; the troupe error is in the context.
  return caf::make_error(caf::sec::runtime_error, why);
}

error from_caf(const caf::error& failure) {
  if (compat::failed(failure)) {
    const caf::message& context = failure.context();
    if (context.size() == 1 && context.match_element<error>(0)) return context.get_as<error>(0);
  }
  const std::string text = " (" + to_string(failure) + ")";
  if (failure == caf::sec::request_timeout)
    return error{.code = errc::deadline_exceeded,
                 .effect = effect::unknown_outcome,
                 .text = "the actor has not answered within the timeout that its client has given to CAF, and the "
                         "request continues: use request_unbounded(), and the request's own deadline" +
                         text};
  return error{
      .code = errc::abandoned, .effect = effect::unknown_outcome, .text = "the actor that was asked has ended" + text};
}

reply_promise answer_to(compat::foreign_reply to) {
  return make_reply_promise([to = std::move(to)](const outcome& result) mutable {
    if (const error* failure = failure_of(result))
      to.deliver(to_caf(*failure));
    else
      to.deliver(std::get<completion>(result));
  });
}

} // namespace troupe
