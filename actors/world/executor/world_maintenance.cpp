#include <troupe/actors/world/executor/rank_results.hpp>
#include <troupe/actors/world/executor/world_maintenance.hpp>
#include <troupe/collectives/operation/capabilities.hpp>

#include <cstddef>
#include <span>
#include <utility>

namespace troupe {

void world_maintenance::ask(maintenance work) {
  ask(std::deque<maintenance>{std::move(work)});
}

void world_maintenance::ask(std::deque<maintenance> steps) {
  if (!steps.front().restores) of_.state.on_maintenance_asked();
  const std::uint64_t number = ++last_number_;
  const maintenance& first = steps.front();
  turn_terms terms{.name = first.name,
                   .deadline = first.restores ? nanoseconds::max() : of_.plan.deadlines.drain + of_.plan.deadlines.form,
                   .split = first.split,
                   .told = first.told};
  asked_.emplace(number, std::move(steps));
  of_.now.order->turn(std::move(terms), [mail = of_.mail, now = of_.state.current_epoch(), all = of_.now.pipelines,
                                         number](const error& why, std::span<const opened_world> opened) {
    if (!why)
      for (const auto& one : all) one->hold();
    mail->post(maintenance_turn{now, number, why, {opened.begin(), opened.end()}});
  });
}

void world_maintenance::let_launch() const {
  for (const auto& one : of_.now.pipelines) one->resume();
}

void world_maintenance::on_turn(maintenance_turn& one) {
  if (one.epoch != of_.state.current_epoch()) return;
  auto asked = asked_.extract(one.number);
  if (asked.empty()) { // it was dropped
    if (!one.refusal) let_launch();
    return;
  }
  std::deque<maintenance>& steps = asked.mapped();
  const bool restores = steps.front().restores;
  if (restores && !one.refusal) {
    one.refusal = objection(); // a world that stops does not wait for restorations
    if (one.refusal) {
      let_launch();
      for (const opened_world& each : one.opened) of_.now.order->decline_world(each.number, one.refusal);
    }
  }
  if (one.refusal) {
    if (!restores) of_.executor.carry_out(of_.state.on_maintenance_refused());
    for (const maintenance& each : steps) each.done(one.refusal);
    return;
  }
  if (restores) of_.state.on_maintenance_asked();
  if (steps.front().granted) steps.front().granted(std::move(one.opened));
  due_.push_back(std::move(steps));
  of_.executor.carry_out(of_.state.on_maintenance_due());
}

void world_maintenance::run() {
  const maintenance& next = due_.front().front();
  if (next.is_due && !next.is_due()) return;
  of_.executor.on_every_rank(next.name.c_str(), of_.plan.deadlines.drain + of_.plan.deadlines.form,
                             rank_report::kind::maintained, [step = next.step](rank_pipeline& one) {
                               one.settle();
                               step(one);
                             });
}

void world_maintenance::end_step() {
  std::deque<maintenance>& now = due_.front();
  const maintenance over = std::move(now.front());
  now.pop_front();
  const bool continues = !now.empty();
  if (!continues) due_.pop_front();
  over.done({});
  if (continues) return of_.executor.carry_out(of_.state.continue_maintenance());
  serve_again();
}

void world_maintenance::serve_again() {
  // Resume at the same place in the order at all ranks, so that all ranks launch the held operations and those of other
  // worlds in one order (ORD-3). The next piece of maintenance begins only after the ranks have received them.
  of_.now.order->turn({.name = "the end of maintenance"},
                      [mail = of_.mail, now = of_.state.current_epoch(),
                       all = of_.now.pipelines](const error&, std::span<const opened_world>) {
                        for (const auto& one : all) one->resume();
                        mail->post(maintenance_over{now});
                      });
}

void world_maintenance::drop(const error& reason) {
  // If the epoch ends without a fault, the operations that its pipelines hold are launched.
  for (std::size_t i = 0; i < due_.size(); ++i) let_launch();
  for (const auto& steps : std::exchange(due_, {}))
    for (const maintenance& each : steps) each.done(reason);
  for (const auto& [number, steps] : std::exchange(asked_, {}))
    for (const maintenance& each : steps) each.done(reason);
}

void world_maintenance::drop_restorations() {
  std::erase_if(asked_, [](const auto& one) { return one.second.front().restores; });
}

namespace {

error objection_to_suspension(const capabilities* able) {
  if (able == nullptr) return {};
  const feature_finding found = able->find(feature::suspend);
  if (found.available != availability::no) return {};
  return {.code = errc::unsupported, .text = able->version + " cannot release its memory: " + found.why};
}

} // namespace

void world_maintenance::suspend(const suspension_request& asked, std::shared_ptr<suspension_answer> reply) {
  error why = objection(asked.epoch);
  if (!why && suspended_)
    why = {.code = errc::invalid_argument, .text = "the world is suspended already: resume it first"};
  if (!why) why = objection_to_suspension(of_.plan.services.able.get());
  if (why) return reply->deliver(std::move(why));
  const auto made = std::make_shared<suspension>();
  const auto released = std::make_shared<rank_results<std::size_t>>();
  suspended_ = made;
  maintenance begin{.name = "the suspension",
                    .step = [released](rank_pipeline& one) { released->set(one.self(), one.peers().suspend()); },
                    .done =
                        [this, made, released, reply = std::move(reply)](const error& failure) {
                          if (failure) return reply->deliver(failure);
                          made->is_in_force = true;
                          of_.executor.announce();
                          reply->deliver(suspension_reply{released->all()});
                        }};
  maintenance end{.name = "the resumption",
                  .is_due = [made] { return made->is_to_end; },
                  .step = [](rank_pipeline& one) { one.peers().resume(); },
                  .done =
                      [this, made](const error& failure) {
                        suspended_ = nullptr;
                        if (!failure) of_.executor.announce();
                        for (const auto& one : std::exchange(made->waiting, {}))
                          failure ? one->deliver(failure) : one->deliver(resumption_reply{});
                      }};
  ask(std::deque<maintenance>{std::move(begin), std::move(end)});
}

void world_maintenance::resume(std::shared_ptr<resumption_answer> reply) {
  if (!suspended_) return reply->deliver(resumption_reply{});
  suspended_->waiting.push_back(std::move(reply));
  end_suspension();
}

void world_maintenance::end_suspension() {
  if (suspended_ && !std::exchange(suspended_->is_to_end, true) && suspended_->is_in_force) run();
}

} // namespace troupe
