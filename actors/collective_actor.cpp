#include <troupe/actors/actor_error.hpp>
#include <troupe/actors/collective_actor.hpp>

#include <utility>

namespace troupe {

collective_actor::collective_actor(caf::actor_config& settings, rank self)
  : collective_handle::base{settings}, state_{self} {}

collective_actor::behavior_type collective_actor::make_behavior() {
  return {
      [this](rank_request& asked) -> caf::result<completion> {
        state_.accept(std::move(asked), take_answer(this), known_client());
        return caf::delegated<completion>{};
      },
      [this](posted_request& posted) {
        state_.accept(std::move(posted.what), std::move(*posted.reply), posted.client);
      },
      [this](const cancel_request& wish) { state_.cancel(wish); },
      [this](const leave_lane& gone) {
        state_.forget(gone.client, {.code = errc::cancelled, .text = "its client has left the lane"});
      },
      [this](adopt_pipeline& given) {
        state_.adopt(std::move(given.pipeline), std::move(given.order), given.default_deadline);
      },
      [this](close_gate& order) {
        state_.close(std::move(order.reason));
        order.closed();
      },
      [this](leave) { quit(); },
  };
}

std::uint64_t collective_actor::known_client() {
  const auto asker = current_sender();
  if (!asker) return 0;
  const std::uint64_t client = asker->id();
  if (clients_.insert(client).second)
    watches_.add(this, caf::actor_cast<caf::actor>(asker), [this, client](const caf::error& reason) {
      clients_.erase(client);
      state_.forget(client, {.code = errc::abandoned, .text = "its client actor has ended: " + to_string(reason)});
    });
  return client;
}

void collective_actor::on_exit() {
  state_.end("it was told to leave or was killed");
}

} // namespace troupe
