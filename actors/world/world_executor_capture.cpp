// Captures plans in the order of requests, and captures them again in a new epoch.
// (docs/design/0020-captured-plans.md)
#include <troupe/actors/world/world_executor.hpp>
#include <troupe/collectives/pipeline/plans/capture_session.hpp>

#include <memory>
#include <string>
#include <utility>

namespace troupe {

namespace {

/// Limit for ranks to leave a capture that has ended. A rank that takes longer is in a launch, or in the client's
/// function, that does not return; its launcher is blocked as well.
constexpr nanoseconds time_to_leave{std::chrono::seconds{2}};

} // namespace

void world_executor::capture(capture_request asked, std::shared_ptr<capture_answer> reply) {
  if (error objection = objection_to(asked)) return reply->deliver(std::move(objection));
  capture_function function = asked.function
                                  ? std::move(asked.function)
                                  : capture_of(std::move(asked.steps), plan_.world_size, plan_.above->fusion());
  const auto plan = std::make_shared<captured_plan>(std::move(function), std::move(asked.options));
  std::erase_if(captured_, [](const auto& one) { return one.expired(); });
  captured_.push_back(plan);
  capture_now(plan, [plan, reply](const error& failure, nanoseconds) {
    if (failure) return reply->deliver(failure);
    reply->deliver(capture_reply{plan});
  });
}

error world_executor::objection_to(const capture_request& asked) const {
  if (error objection = state_.maintenance_objection(asked.epoch)) return objection;
  if (!order_)
    return {.code = errc::unsupported,
            .text = "only " + std::to_string(plan_.locals.size()) + " of the world's " +
                    std::to_string(plan_.world_size) +
                    " ranks live in this process: plans are captured where all of them do"};
  const auto refuse = [](std::string text) { return error{.code = errc::invalid_argument, .text = std::move(text)}; };
  if (asked.options.deadline < nanoseconds{0}) return refuse("a deadline cannot be negative");
  if (!asked.options.streams.empty() && asked.options.streams.size() != plan_.locals.size())
    return refuse("the plan names " + std::to_string(asked.options.streams.size()) + " streams, the world has " +
                  std::to_string(plan_.world_size) + " ranks: give one for each rank, or none");
  if (static_cast<bool>(asked.function) != asked.steps.empty())
    return refuse("a plan is captured from a function or from requests: give one of the two");
  for (std::size_t k = 0; k < asked.steps.size(); ++k) {
    const auto& parts = asked.steps[k];
    error objection = parts.size() == plan_.locals.size()
                          ? check_agreement(parts)
                          : refuse("it has " + std::to_string(parts.size()) + " parts, the world has " +
                                   std::to_string(plan_.world_size) + " ranks: give one part for each rank");
    if (!objection) objection = entrance_.objection_to(parts);
    if (!objection) continue;
    objection.text = "step " + std::to_string(k) + " of the plan: " + objection.text;
    return objection;
  }
  return {};
}

void world_executor::capture_now(const std::shared_ptr<captured_plan>& plan,
                                 std::function<void(const error&, nanoseconds)> tell) {
  const nanoseconds patience =
      plan->options().deadline == world_default_deadline ? plan_.deadlines.form : plan->options().deadline;
  const epoch now = state_.current_epoch();
  const auto session = std::make_shared<capture_session>(plan, order_->ranks(), world_stamp{number_, now},
                                                         later(steady_now(), patience), registered_);
  const auto over = [session, now, tell = std::move(tell), mail = mail_](error failure) {
    if (!failure) return tell({}, session->took());
    // A rank that is still in the capture blocks its launcher, so nothing more can be launched there.
    for (const rank one : session->give_up())
      mail->post(rank_report{rank_report::kind::faulted,
                             one,
                             now,
                             {.code = errc::deadline_exceeded,
                              .text = "the capture of a plan has not come back from the client's function, or "
                                      "from a launch",
                              .rank = one}});
    if (failure.code == errc::deadline_exceeded) failure = session->failure(); // it knows where each rank was
    failure.effect = effect::rejected;
    tell(failure, session->took());
  };
  plan_.helpers->run(
      "the capture of a plan", patience + time_to_leave, [session] { session->wait(); }, over);
  order_->sequence([session](rank_pipeline& one) { session->take_part(one); });
}

void world_executor::recapture_plans() {
  std::erase_if(captured_, [](const auto& one) { return one.expired(); });
  // Do this before any other request of this epoch, so that no replay comes first. A failure is reported by later
  // replays.
  for (const auto& one : captured_) {
    const auto plan = one.lock();
    if (!plan) continue;
    restored_part made{.kind = restored_kind::plan, .number = plan->number()};
    const std::size_t streams = plan->options().streams.size();
    if (streams > 0 && streams != plan_.locals.size()) {
      made.state = restored_state::lost;
      made.failure = drop_plan(*plan);
      restored_.push_back(std::move(made));
      continue;
    }
    restored_.push_back(made);
    capture_now(plan, [made, mail = mail_, now = state_.current_epoch()](const error& failure, nanoseconds took) {
      restored_part ended = made;
      ended.state = failure ? restored_state::lost : restored_state::back;
      ended.took = took;
      ended.failure = failure;
      mail->post(restored_report{now, std::move(ended)});
    });
  }
}

} // namespace troupe
