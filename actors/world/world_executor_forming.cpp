// Forms an epoch with a world's ranks. (docs/design/0026-epochs.md)
#include <troupe/actors/world/world_executor.hpp>
#include <troupe/collectives/backend/solo_communicator.hpp>
#include <troupe/device/planted_bug.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

std::vector<seat> seats_of(const world_plan& plan, std::uint64_t number) {
  std::vector<seat> seats;
  for (const local_rank& one : plan.locals)
    seats.push_back({.self = one.self,
                     .world_size = plan.world_size,
                     .where = *one.where,
                     .able = plan.services.able.get(),
                     .stamp = {.world = number}});
  return seats;
}

} // namespace

void world_executor::form(const world_effect::form& how) {
  const epoch now = state_.current_epoch();
  if (how.order) take_seat(*how.order);
  for (std::size_t i = 0; i < places_.size(); ++i)
    if (ended_.contains(places_[i])) states_[places_[i]] = shell_.replace_rank(places_[i], plan_.locals[i].self);
  ended_.clear();
  seats_ = std::make_shared<const std::vector<seat>>(seats_of(plan_, number_));
  try {
    auto ends = plan_.formed.empty() ? make_ends(how) : plan_.formed;
    for (std::size_t i = 0; i < plan_.locals.size(); ++i) {
      const local_rank& one = plan_.locals[i];
      pipelines_.push_back(rank_pipeline::create(
          plan_.services, std::move(ends[i]), one.hand, now, [mail = mail_, at = one.self, now](error why) {
            mail->post(rank_report{rank_report::kind::faulted, at, now, std::move(why)});
          }));
      pipelines_.back()->belongs_to(number_);
      pipelines_.back()->on_late([mail = mail_, at = one.self, now](error why) {
        mail->post(rank_report{rank_report::kind::late, at, now, std::move(why)});
      });
    }
  } catch (...) {
    return carry_out(state_.on_formed(now, current_error()));
  }
  on_every_rank("the forming", plan_.deadlines.form, rank_report::kind::formed, forming(how));
  plan_.formed.clear(); // used in the first epoch only
}

void world_executor::take_seat(const formation_order& order) {
  plan_.world_size = order.world_size;
  plan_.locals.front().self = order.self;
  plan_.id = order.id;
  if (!order.has_newcomers) return;
  // A new process has none of these, and all processes would have to register and capture the same.
  registered_.clear();
  captured_.clear();
}

world_executor::step world_executor::forming(const world_effect::form& how) {
  if (!plan_.formed.empty())
    return [all = spares_](rank_pipeline& one) {
      one.init_formed();
      keep_spares(all, one);
    };
  const bool is_beside = how.how != recovery_rung::abort_first;
  registering_ = registered_.empty() ? nullptr : std::make_shared<restored_registrations>(registered_.size());
  return [is_beside, all = spares_, registered = registered_, times = registering_, time = plan_.services.time,
          locals = ranks_of(plan_)](rank_pipeline& one) {
    if (is_beside) give_back_spares(all, one);
    one.init();
    const auto local = std::ranges::find(locals, one.self()) - locals.begin();
    for (std::size_t i = 0; i < registered.size() && !is_planted(planted_bug::lost_registration); ++i) {
      const time_point began = time->now();
      one.peers().register_region(registered[i]->region(static_cast<std::size_t>(local)));
      times->note(i, began, time->now());
    }
    if (!is_beside) keep_spares(all, one);
  };
}

void world_executor::give_back_spares(const spares& all, const rank_pipeline& of) {
  if (const auto found = all.find(of.where()); found != all.end()) found->second->give_back();
}

void world_executor::keep_spares(const spares& all, const rank_pipeline& of) {
  const auto found = all.find(of.where());
  if (found == all.end()) return;
  try {
    found->second->fill();
  } catch (const exception&) { // spare streams are a precaution: later users of the device get its error
  }
}

world_executor::communicators world_executor::make_ends() const {
  communicators ends;
  const unique_id id = plan_.id ? *plan_.id : plan_.world_size > 1 ? plan_.backend->make_unique_id() : unique_id{};
  for (const local_rank& one : plan_.locals)
    if (plan_.world_size > 1)
      ends.push_back(plan_.backend->create(id, one.self, plan_.world_size, one.where));
    else
      ends.push_back(std::make_shared<solo_communicator>(one.where));
  return ends;
}

void world_executor::adopt() {
  restored_registrations_are_back();
  if (pipelines_.size() == static_cast<std::size_t>(plan_.world_size)) {
    order_ = plan_.above->open_world(
        pipelines_, [mail = mail_](auto report) { mail->post(straggling_report{std::move(report)}); }, plan_.retries);
    for (const auto& pool : registered_) order_->add_registered(pool);
    recapture_plans();
  }
  if (plan_.guide && !order_ && plan_.ordering == ordering::agreed)
    guided_order_ = plan_.guide->open_order(pipelines_.front());
  plan_.pending->reopen();
  if (first_ == epoch{}) {
    first_ = state_.current_epoch();
    plan_.services.poller->attach(plan_.pending);
  }
  const std::shared_ptr<rank_order> order = plan_.ordering == ordering::caller ? nullptr
                                            : order_                           ? std::shared_ptr<rank_order>{order_}
                                                                               : guided_order_;
  for (std::size_t i = 0; i < places_.size(); ++i)
    states_[places_[i]]->adopt(pipelines_[i], order, plan_.deadlines.operation, plan_.pending, first_);
}

} // namespace troupe
