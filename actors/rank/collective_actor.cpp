#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/actors/rank/collective_actor.hpp>

#include <string>
#include <utility>

namespace troupe {

collective_actor::collective_actor(caf::actor_config& settings, std::shared_ptr<collective_state> state)
  : collective_inner_handle::base{settings}, state_{std::move(state)} {}

compat::enqueue_result collective_actor::enqueue(caf::mailbox_element_ptr what, compat::enqueue_host* host) {
  if (take_before_handlers(*what)) return compat::enqueue_result(true);
  exit_.see(*what, address());
  return collective_inner_handle::base::enqueue(std::move(what), host);
}

bool collective_actor::take_before_handlers(caf::mailbox_element& element) {
  if (auto asked = compat::take_message<rank_request>(element)) {
    const std::uint64_t client = client_of(element.sender);
    state_->accept(std::move(*asked), answer_to({this, element}), client);
    return true;
  }
  if (auto asked = compat::take_message<overlapped_request>(element)) {
    const std::uint64_t client = client_of(element.sender);
    state_->accept(std::move(asked->what), make_overlapped_promise(value_promise_to<enqueued>({this, element}), 1),
                   client);
    return true;
  }
  if (const auto query = compat::take_message<outcome_request>(element)) {
    query->outcome.redeem(answer_to({this, element}));
    return true;
  }
  if (const auto query = compat::take_message<cancel_request>(element)) {
    state_->cancel(*query);
    return true;
  }
  if (const auto gone = compat::take_message<leave_lane>(element)) {
    leave_lanes(*gone);
    return true;
  }
  return false;
}

collective_actor::behavior_type collective_actor::make_behavior() {
  return {
      // The next five handlers run only if enqueue() could not unpack the message and left it to CAF.
      [this](rank_request& asked) -> caf::result<completion> {
        const std::uint64_t client = client_of(current_sender());
        state_->accept(std::move(asked), take_answer(this), client);
        return caf::delegated<completion>{};
      },
      [this](overlapped_request& asked) -> caf::result<enqueued> {
        const std::uint64_t client = client_of(current_sender());
        state_->accept(std::move(asked.what), make_overlapped_promise(take_value_promise<enqueued>(this), 1), client);
        return caf::delegated<enqueued>{};
      },
      [this](const outcome_request& query) -> caf::result<completion> {
        query.outcome.redeem(take_answer(this));
        return caf::delegated<completion>{};
      },
      [this](const cancel_request& query) { state_->cancel(query); },
      [this](const leave_lane& gone) { leave_lanes(gone); },
      [this](const watch_client& one) { monitor_client(one.client); },
      [this](leave) { quit(); },
  };
}

std::uint64_t collective_actor::client_of(const caf::strong_actor_ptr& asker) {
  if (!asker) return 0;
  const std::uint64_t client = asker->id();
  if (known_.add(client))
    compat::post(caf::actor_cast<collective_inner_handle>(this), watch_client{caf::actor_cast<caf::actor>(asker)});
  return client;
}

void collective_actor::monitor_client(const caf::actor& client) {
  const std::uint64_t number = client.id();
  if (!watched_.insert(number).second) return;
  watches_.add(this, client, [this, number](const caf::error& reason) {
    watched_.erase(number);
    known_.remove(number);
    state_->forget(number, {.code = errc::abandoned, .text = "its client actor has ended: " + to_string(reason)});
  });
}

void collective_actor::leave_lanes(const leave_lane& gone) {
  state_->forget(gone.client, {.code = errc::cancelled, .text = "its client has left the lane"});
}

void collective_actor::on_exit() {
  const std::string by = exit_.text();
  state_->end(by.empty() ? by : "it was ended" + by);
}

} // namespace troupe
