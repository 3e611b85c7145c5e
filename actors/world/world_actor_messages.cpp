// Handles the messages of a world: requests in enqueue(), on the sender's thread; all others in the actor.
#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/actors/world/world_actor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace troupe {

namespace {

/// Returns the actor's id; 0: no actor.
std::uint64_t number_of(const caf::strong_actor_ptr& asker) noexcept {
  return asker ? asker->id() : 0;
}

} // namespace

compat::enqueue_result world_actor::enqueue(caf::mailbox_element_ptr what, compat::enqueue_host* host) {
  if (auto asked = compat::take_message<world_request>(*what)) {
    const std::uint64_t client = number_of(what->sender);
    conductor_.entrance().accept(std::move(*asked), answer_to({this, *what}), client);
    return compat::enqueue_result(true);
  }
  if (auto posted = compat::take_message<posted_world_request>(*what)) {
    conductor_.entrance().accept(std::move(posted->what), std::move(*posted->reply));
    return compat::enqueue_result(true);
  }
  if (auto asked = compat::take_message<overlapped_world_request>(*what)) {
    // One part per rank; other counts are refused later.
    const std::size_t parts = std::max<std::size_t>(asked->what.parts.size(), 1);
    const std::uint64_t client = number_of(what->sender);
    conductor_.entrance().accept(std::move(asked->what),
                                 make_overlapped_promise(value_promise_to<enqueued>({this, *what}), parts), client);
    return compat::enqueue_result(true);
  }
  if (const auto wish = compat::take_message<outcome_request>(*what)) {
    wish->outcome.redeem(answer_to({this, *what}));
    return compat::enqueue_result(true);
  }
  return world_inner_handle::base::enqueue(std::move(what), host);
}

world_actor::behavior_type world_actor::make_behavior() {
  for (std::size_t i = 0; i < actors_.size(); ++i) watch_rank(i);
  conductor_.begin();
  return {
      // The next four handlers run only if enqueue() could not unpack the message and left it to CAF.
      [this](world_request& asked) -> caf::result<completion> {
        const std::uint64_t client = number_of(current_sender());
        conductor_.entrance().accept(std::move(asked), take_answer(this), client);
        return caf::delegated<completion>{};
      },
      [this](posted_world_request& posted) {
        conductor_.entrance().accept(std::move(posted.what), std::move(*posted.reply));
      },
      [this](overlapped_world_request& asked) -> caf::result<enqueued> {
        const std::size_t parts = std::max<std::size_t>(asked.what.parts.size(), 1);
        const std::uint64_t client = number_of(current_sender());
        conductor_.entrance().accept(std::move(asked.what),
                                     make_overlapped_promise(take_value_promise<enqueued>(this), parts), client);
        return caf::delegated<enqueued>{};
      },
      [this](const outcome_request& wish) -> caf::result<completion> {
        wish.outcome.redeem(take_answer(this));
        return caf::delegated<completion>{};
      },
      [this](split_request& asked) -> caf::result<split_reply> {
        split(std::move(asked), take_value_promise<split_reply>(this));
        return caf::delegated<split_reply>{};
      },
      [this](posted_split& posted) { split(std::move(posted.what), std::move(posted.reply)); },
      [this](registration_request& asked) -> caf::result<registration_reply> {
        conductor_.register_memory(asked, take_value_promise<registration_reply>(this));
        return caf::delegated<registration_reply>{};
      },
      [this](posted_registration& posted) { conductor_.register_memory(posted.what, std::move(posted.reply)); },
      [this](const suspension_request& asked) -> caf::result<suspension_reply> {
        conductor_.suspend(asked, take_value_promise<suspension_reply>(this));
        return caf::delegated<suspension_reply>{};
      },
      [this](posted_suspension& posted) { conductor_.suspend(posted.what, std::move(posted.reply)); },
      [this](resumption_request) -> caf::result<resumption_reply> {
        conductor_.resume(take_value_promise<resumption_reply>(this));
        return caf::delegated<resumption_reply>{};
      },
      [this](posted_resumption& posted) { conductor_.resume(std::move(posted.reply)); },
      [this](capture_request& asked) -> caf::result<capture_reply> {
        conductor_.capture(std::move(asked), take_value_promise<capture_reply>(this));
        return caf::delegated<capture_reply>{};
      },
      [this](posted_capture& posted) { conductor_.capture(std::move(posted.what), std::move(posted.reply)); },
      [this](const credit_request& asked) -> caf::result<credit> {
        conductor_.give_credit(asked, take_value_promise<credit>(this));
        return caf::delegated<credit>{};
      },
      [this](posted_credit& posted) { conductor_.give_credit(posted.what, std::move(posted.reply)); },
      [this](status_query) { return conductor_.event(); },
      [this](capabilities_query) {
        const auto& able = conductor_.plan().services.able;
        return able ? *able : capabilities{};
      },
      [this](subscribe& wish) {
        compat::send(this, wish.listener, conductor_.event());
        listeners_.push_back(std::move(wish.listener));
      },
      [this](stop_world) { stop(); },
      [this](rank_report& report) { conductor_.on(std::move(report)); },
      [this](const rebuild_due& due) { conductor_.on(due); },
      [this](straggling_report& late) { conductor_.on(std::move(late)); },
      [this](restored_report& one) { conductor_.on(std::move(one)); },
      [this](guidance& one) { conductor_.on(std::move(one)); },
      [this](sub_worlds_report& report) {
        if (auto restored = sub_worlds_.restored_by(report)) conductor_.sub_world_is_back(std::move(*restored));
        sub_worlds_.heard(report);
        if (stopping_ && sub_worlds_.all_stopped()) conductor_.stop();
      },
  };
}

} // namespace troupe
