// What a world is told: requests at the door, by the thread that brings them; all else in turn.
#include <troupe/actors/actor_error.hpp>
#include <troupe/actors/world_actor.hpp>

#include <string>
#include <utility>

namespace troupe {

compat::enqueue_result world_actor::enqueue(caf::mailbox_element_ptr what, compat::enqueue_host* host) {
  if (auto asked = compat::take_message<world_request>(*what)) {
    entrance_.accept(std::move(*asked), answer_to({this, *what}));
    return compat::enqueue_result(true);
  }
  if (auto posted = compat::take_message<posted_world_request>(*what)) {
    entrance_.accept(std::move(posted->what), std::move(*posted->reply));
    return compat::enqueue_result(true);
  }
  if (auto asked = compat::take_message<overlapped_world_request>(*what)) {
    entrance_.accept(std::move(asked->what),
                     make_overlapped_answer(value_answer_to<enqueued>({this, *what}), states_.size()));
    return compat::enqueue_result(true);
  }
  if (const auto wish = compat::take_message<outcome_request>(*what)) {
    wish->outcome.redeem(answer_to({this, *what}));
    return compat::enqueue_result(true);
  }
  return world_inner_handle::base::enqueue(std::move(what), host);
}

world_actor::behavior_type world_actor::make_behavior() {
  for (std::size_t i = 0; i < collectives_.size(); ++i)
    watches_.add(this, collectives_[i], [this, self = plan_.locals[i].self](const caf::error& reason) {
      state_.forbid_rebuilds("the collective actor of rank " + to_string(self) + " has ended");
      carry_out(state_.on_fault(state_.current_epoch(), {.code = errc::abandoned,
                                                         .text = "the collective actor of rank " + to_string(self) +
                                                                 " ended: " + to_string(reason),
                                                         .rank = self}));
    });
  carry_out(state_.begin());
  return {
      // These four come here only where CAF itself had to look at them first.
      [this](world_request& asked) -> caf::result<completion> {
        entrance_.accept(std::move(asked), take_answer(this));
        return caf::delegated<completion>{};
      },
      [this](posted_world_request& posted) { entrance_.accept(std::move(posted.what), std::move(*posted.reply)); },
      [this](overlapped_world_request& asked) -> caf::result<enqueued> {
        entrance_.accept(std::move(asked.what),
                         make_overlapped_answer(take_value_answer<enqueued>(this), plan_.locals.size()));
        return caf::delegated<enqueued>{};
      },
      [this](const outcome_request& wish) -> caf::result<completion> {
        wish.outcome.redeem(take_answer(this));
        return caf::delegated<completion>{};
      },
      [this](split_request& asked) -> caf::result<split_reply> {
        split(std::move(asked), take_value_answer<split_reply>(this));
        return caf::delegated<split_reply>{};
      },
      [this](posted_split& posted) { split(std::move(posted.what), std::move(posted.reply)); },
      [this](registration_request& asked) -> caf::result<registration_reply> {
        register_memory(asked, take_value_answer<registration_reply>(this));
        return caf::delegated<registration_reply>{};
      },
      [this](posted_registration& posted) { register_memory(posted.what, std::move(posted.reply)); },
      [this](capture_request& asked) -> caf::result<capture_reply> {
        capture(std::move(asked), take_value_answer<capture_reply>(this));
        return caf::delegated<capture_reply>{};
      },
      [this](posted_capture& posted) { capture(std::move(posted.what), std::move(posted.reply)); },
      [this](const credit_request& asked) -> caf::result<credit> {
        give_credit(asked, take_value_answer<credit>(this));
        return caf::delegated<credit>{};
      },
      [this](posted_credit& posted) { give_credit(posted.what, std::move(posted.reply)); },
      [this](status_query) { return state_.event(); },
      [this](capabilities_query) { return plan_.services.able ? *plan_.services.able : capabilities{}; },
      [this](subscribe& wish) {
        compat::send(this, wish.listener, state_.event());
        listeners_.push_back(std::move(wish.listener));
      },
      [this](stop_world) { stop(); },
      [this](rank_report& report) {
        switch (report.what) {
          case rank_report::kind::formed: return carry_out(state_.on_formed(report.epoch, report.failure));
          case rank_report::kind::faulted: return carry_out(state_.on_fault(report.epoch, std::move(report.failure)));
          case rank_report::kind::closed: return carry_out(state_.on_closed(report.epoch));
          case rank_report::kind::drained: return carry_out(state_.on_drained(report.epoch, report.failure));
          case rank_report::kind::released: return carry_out(state_.on_released(report.epoch, report.failure));
          case rank_report::kind::maintained: return carry_out(state_.on_maintained(report.epoch, report.failure));
        }
      },
      [this](const rebuild_due& due) { carry_out(state_.on_rebuild_due(due.failed)); },
      [this](const straggling_report& late) {
        world_event now = state_.event();
        now.straggling = late.report;
        announce(now);
      },
      [this](offspring_report& report) {
        offspring_.heard(report);
        if (stopping_ && offspring_.all_stopped()) carry_out(state_.on_stop());
      },
  };
}

} // namespace troupe
