/// A client actor that does what a script says, and counts the replies that reach it.
#pragma once

#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/actors/caf/messages.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::tests {

/// It is told the numbers of its steps.
using client_handle = compat::typed_actor<caf::result<void>(std::uint64_t)>;

class scripted_client;

/// What a client is to do, and what came of it: outlives the actor. What it does not live to do, or to see the end of,
/// is answered in its place.
struct client_script {
  struct step {
    std::function<void(scripted_client&, reply_promise)> what;
    reply_promise reply;
  };

  std::vector<std::optional<step>> steps{};
  std::map<std::size_t, reply_promise> pending{}; ///< Of what it has asked, in the order asked.
  std::map<std::uint64_t, std::size_t> replies{}; ///< By request, as they came to its door (ONE-1).
  std::size_t asked = 0;
  bool ended = false;

  void end() {
    ended = true;
    const error never{.code = errc::abandoned, .effect = effect::rejected, .text = "its client ended before it asked"};
    const error unheard{
        .code = errc::abandoned, .effect = effect::unknown_outcome, .text = "its client ended before the reply"};
    for (auto& one : std::exchange(steps, {}))
      if (one) one->reply.deliver(never);
    for (auto& one : std::exchange(pending, {})) one.second.deliver(unheard);
  }
};

class scripted_client final : public client_handle::base {
public:
  scripted_client(caf::actor_config& settings, std::shared_ptr<client_script> script)
    : client_handle::base{settings}, script_{std::move(script)} {}

  using client_handle::base::enqueue;
  compat::enqueue_result enqueue(caf::mailbox_element_ptr what, compat::enqueue_host* host) override {
    if (what->mid.is_response()) ++script_->replies[what->mid.integer_value()];
    return client_handle::base::enqueue(std::move(what), host);
  }

  behavior_type make_behavior() override {
    return {[this](std::uint64_t number) {
      auto next = std::exchange(script_->steps.at(number), std::nullopt);
      next->what(*this, std::move(next->reply));
    }};
  }
  void on_exit() override { script_->end(); }

  /// The outcome that \p whom replies goes to \p reply.
  template <class Handle, class Request>
  void ask(const Handle& target, Request what, reply_promise reply) {
    const std::size_t number = script_->asked++;
    script_->pending.emplace(number, std::move(reply));
    compat::request_unbounded(this, target, std::move(what))
        .then([this, number](const completion& one) { heard(number, one); },
              [this, number](const caf::error& why) { heard(number, from_caf(why)); });
  }

private:
  void heard(std::size_t number, outcome result) {
    auto found = script_->pending.extract(number);
    if (!found.empty()) found.mapped().deliver(std::move(result));
  }

  std::shared_ptr<client_script> script_;
};

} // namespace troupe::tests
