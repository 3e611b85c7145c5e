#include <troupe/actors/world/executor/captured_plans.hpp>
#include <troupe/collectives/operation/signature.hpp>
#include <troupe/collectives/pipeline/plans/capture_session.hpp>
#include <troupe/collectives/pipeline/plans/plan_steps.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <variant>

namespace troupe {

namespace {

/// Limit for ranks to leave a capture that has ended. A rank that takes longer is in a launch or in the client's
/// function that does not return, so its launcher is blocked too.
constexpr nanoseconds time_to_leave{std::chrono::seconds{2}};

/// Returns the sum, without overflow.
nanoseconds later_by(nanoseconds one, nanoseconds more) {
  return one > nanoseconds::max() - more ? nanoseconds::max() : one + more;
}

} // namespace

void captured_plans::perform(capture_request asked, const std::shared_ptr<capture_answer>& reply) {
  capture(std::move(asked), reply, true);
}

void captured_plans::capture(capture_request asked, const std::shared_ptr<capture_answer>& reply, bool is_lasting) {
  if (error objection = objection_to(asked)) return reply->deliver(std::move(objection));
  if (of_.plan.to_controller && asked.options.name.empty())
    asked.options.name = std::string{unnamed_plan} + std::to_string(++unnamed_count_);
  capture_function function = asked.function
                                  ? std::move(asked.function)
                                  : capture_of(std::move(asked.steps), of_.plan.world_size, of_.plan.above->fusion());
  const auto plan = std::make_shared<captured_plan>(std::move(function), std::move(asked.options));
  std::erase_if(captured_, [](const auto& one) { return one.expired(); });
  if (is_lasting) captured_.push_back(plan);
  if (!plan->options().name.empty()) directory_->add(plan);
  capture_now(plan, patience_of(*plan), [plan, reply, directory = directory_](const error& failure, nanoseconds) {
    // A captured plan whose success this process may not report is there, as at its peers.
    if (failure && failure.effect == effect::rejected)
      directory->remove(plan);
    else
      directory->replace_by(plan);
    if (failure) return reply->deliver(failure);
    reply->deliver(capture_reply{plan});
  });
}

void captured_plans::perform(peer_capture asked) {
  if (asked.epoch != of_.state.current_epoch()) return; // the order of that epoch has been closed and has answered
  plan_steps steps;
  for (operation& one : asked.steps) steps.push_back({std::move(one)});
  capture_request wanted{.steps = std::move(steps), .options = std::move(asked.options), .epoch = asked.epoch};
  if (!asked.objection) asked.objection = objection_to(wanted);
  // A rank that cannot capture its part joins the capture nevertheless and fails it, so that no other rank waits for
  // it.
  if (asked.objection)
    wanted = {.function = [why = asked.objection](rank_capture&) { throw exception{why}; },
              .options = std::move(wanted.options),
              .epoch = asked.epoch};
  const auto answer = [done = std::move(asked.done)](const std::variant<capture_reply, error>& result) {
    const error* const why = std::get_if<error>(&result);
    done(why != nullptr ? nullptr : std::get<capture_reply>(result).plan, why != nullptr ? *why : error{});
  };
  capture(std::move(wanted), std::make_shared<capture_answer>(answer), false);
}

nanoseconds captured_plans::patience_of(const captured_plan& plan) const {
  return plan.options().deadline == world_default_deadline ? of_.plan.deadlines.form : plan.options().deadline;
}

error captured_plans::objection_to(const capture_request& asked) const {
  if (error objection = of_.state.maintenance_objection(asked.epoch)) return objection;
  if (error objection = of_.now.order->objection_to_capture()) return objection;
  const auto refuse = [](std::string text) { return error{.code = errc::invalid_argument, .text = std::move(text)}; };
  if (asked.options.deadline < nanoseconds{0}) return refuse("a deadline cannot be negative");
  if (asked.options.name.size() > longest_plan_name_bytes || asked.options.name.starts_with(unnamed_plan))
    return refuse("a plan's name has at most " + std::to_string(longest_plan_name_bytes) +
                  " bytes and does not begin with '" + std::string{unnamed_plan} + "'");
  const std::size_t local = of_.plan.locals.size();
  const bool is_whole = local == static_cast<std::size_t>(of_.plan.world_size);
  const std::string here = is_whole ? "the world has " + std::to_string(local) + " ranks"
                                    : "this process has " + std::to_string(local) + " of the world's ranks";
  if (!asked.options.streams.empty() && asked.options.streams.size() != local)
    return refuse("the plan names " + std::to_string(asked.options.streams.size()) + " streams, " + here +
                  ": give one for each rank, or none");
  if (static_cast<bool>(asked.function) != asked.steps.empty())
    return refuse("a plan is captured from a function or from requests: give one of the two");
  for (std::size_t k = 0; k < asked.steps.size(); ++k) {
    const auto& parts = asked.steps[k];
    error objection;
    if (parts.size() != local)
      objection =
          refuse("it has " + std::to_string(parts.size()) + " parts, " + here + ": give one part for each rank");
    else if (is_whole)
      objection = check_agreement(parts);
    if (!objection) objection = gate_.objection_to(parts);
    if (!objection) continue;
    objection.text = "step " + std::to_string(k) + " of the plan: " + objection.text;
    return objection;
  }
  return {};
}

std::function<void(const std::shared_ptr<capture_session>&)> captured_plans::watch_for(nanoseconds limit,
                                                                                       capture_end tell) const {
  return [limit, tell = std::move(tell), mail = of_.mail, helpers = of_.plan.helpers,
          now = of_.state.current_epoch()](const std::shared_ptr<capture_session>& session) {
    const auto over = [session, now, tell, mail](error failure) {
      if (!failure) return tell(session->lapse(), session->took());
      // A rank that is still in the capture blocks its launcher, so nothing more can be launched there.
      for (const rank one : session->give_up())
        mail->post(
            rank_report{rank_report::kind::faulted,
                        one,
                        now,
                        {.code = errc::deadline_exceeded,
                         .text = "the capture of a plan has not returned from the client's function or from a launch",
                         .rank = one}});
      if (failure.code == errc::deadline_exceeded)
        failure = session->failure(); // the session knows where each rank was
      failure.effect = effect::rejected;
      tell(failure, session->took());
    };
    helpers->run(
        "the capture of a plan", later_by(limit, time_to_leave), [session] { session->wait(); }, over);
  };
}

void captured_plans::capture_now(const std::shared_ptr<captured_plan>& plan, nanoseconds wait_for_peers,
                                 capture_end tell) {
  const nanoseconds patience = patience_of(*plan);
  const world_stamp stamp{world_, of_.state.current_epoch()};
  begin_capture(*plan, stamp, of_.now.pipelines); // now, because requests to replay it may come before its turn
  const nanoseconds limit = later_by(patience, of_.now.order->capture_grace());
  auto start = [plan, tell, stamp, limit, watch = watch_for(limit, tell),
                ranks = of_.now.pipelines](std::shared_ptr<capture_agreement> peers, error why) {
    if (!peers) {
      plan->fail(why);
      why.effect = effect::rejected;
      return tell(why, nanoseconds{0});
    }
    const auto session =
        std::make_shared<capture_session>(plan, ranks, stamp, later(steady_now(), limit), std::move(peers));
    watch(session);
    for (const auto& each : ranks) each->sequence([session](rank_pipeline& one) { session->take_part(one); });
  };
  of_.now.order->capture(plan, wait_for_peers, patience, std::move(start));
}

void captured_plans::capture_again() {
  std::erase_if(captured_, [](const auto& one) { return one.expired(); });
  for (const auto& one : captured_) {
    const auto plan = one.lock();
    // Processes capture the plans that names stand for. A replay in flight may hold another one a little longer at one
    // rank than at the others, and its capture would have no peers.
    if (!plan || (of_.plan.to_controller && directory_->find(plan->options().name) != plan)) continue;
    restored_part made{.kind = restored_kind::plan, .number = plan->number(), .name = plan->options().name};
    const std::size_t streams = plan->options().streams.size();
    if (streams > 0 && streams != of_.plan.locals.size()) {
      made.state = restored_state::lost;
      made.failure = drop(*plan);
      restored_.add(std::move(made));
      continue;
    }
    restored_.add(made);
    // A process that has joined captures its plans when it is ready to, so the others wait for it without limit.
    const nanoseconds wait_for_peers = nanoseconds::max();
    capture_now(plan, wait_for_peers,
                [made, mail = of_.mail, now = of_.state.current_epoch()](const error& failure, nanoseconds took) {
                  restored_part ended = made;
                  ended.state = failure ? restored_state::lost : restored_state::back;
                  ended.took = took;
                  ended.failure = failure;
                  mail->post(restored_report{now, std::move(ended)});
                });
  }
}

error captured_plans::drop(captured_plan& plan) const {
  error why{.code = errc::invalid_argument,
            .text = "it was captured in " + std::to_string(plan.options().streams.size()) +
                    " streams of the client, one for each rank, and the world has " +
                    std::to_string(of_.plan.world_size) + " ranks now: capture another"};
  begin_capture(plan, {world_, of_.state.current_epoch()}, of_.now.pipelines);
  plan.fail(why);
  return why;
}

} // namespace troupe
