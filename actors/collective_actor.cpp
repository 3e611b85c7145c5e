#include <troupe/actors/actor_error.hpp>
#include <troupe/actors/collective_actor.hpp>

#include <utility>

namespace troupe {

collective_actor::collective_actor(caf::actor_config& settings, rank self)
  : collective_handle::base{settings}, state_{self} {}

collective_actor::behavior_type collective_actor::make_behavior() {
  return {
      [this](rank_request& asked) -> caf::result<completion> {
        state_.accept(std::move(asked), take_answer(this));
        return caf::delegated<completion>{};
      },
      [this](posted_request& posted) { state_.accept(std::move(posted.what), std::move(*posted.reply)); },
      [this](adopt_pipeline& given) { state_.adopt(std::move(given.pipeline), given.default_deadline); },
      [this](close_gate& order) {
        state_.close(std::move(order.reason));
        order.closed();
      },
      [this](leave) { quit(); },
  };
}

void collective_actor::on_exit() {
  state_.end("it was told to leave or was killed");
}

} // namespace troupe
