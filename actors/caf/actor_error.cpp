#include <troupe/actors/caf/actor_error.hpp>

#include <caf/message.hpp>
#include <caf/sec.hpp>

namespace troupe {

namespace {

class reply_sink final : public outcome_sink {
public:
  explicit reply_sink(compat::foreign_reply to) noexcept : to_{std::move(to)} {}

  void deliver(outcome result) noexcept override {
    if (const error* failure = failure_of(result))
      to_.deliver(to_caf(*failure));
    else
      to_.deliver(std::get<completion>(result));
  }

private:
  compat::foreign_reply to_;
};

} // namespace

caf::error to_caf(const error& why) {
  // All errors have the same CAF code; the troupe error is in the context.
  return caf::make_error(caf::sec::runtime_error, why);
}

error from_caf(const caf::error& failure) {
  if (compat::failed(failure)) {
    const caf::message& context = failure.context();
    if (context.size() == 1 && context.match_element<error>(0)) return context.get_as<error>(0);
  }
  return error{.code = errc::abandoned,
               .effect = effect::unknown_outcome,
               .text = "the actor that was asked has ended (" + to_string(failure) + ")"};
}

reply_promise answer_to(compat::foreign_reply to) {
  return reply_promise{std::make_unique<reply_sink>(std::move(to))};
}

} // namespace troupe
