#include <troupe/actors/rank/collective_state.hpp>
#include <troupe/collectives/operation/collective_methods_definitions.hpp>
#include <troupe/collectives/progress/absence_report.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/testing/virtual_machine.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::testing {

namespace {

/// The client number of the test for the world and its ranks; a test is one client.
constexpr std::uint64_t the_client = 1;

} // namespace

struct virtual_reply::state {
  std::mutex mutex; ///< Needed by the condition, and protects against a mistaken call from a real thread.
  condition changed;
  std::optional<outcome> result;
  time_point at;
};

std::pair<reply_promise, virtual_reply> virtual_reply::make() {
  auto to = std::make_shared<state>();
  return {make_reply_promise([to](outcome result) {
            const std::lock_guard lock{to->mutex};
            to->result = std::move(result);
            to->at = steady_now();
            to->changed.notify_all();
          }),
          virtual_reply{to}};
}

bool virtual_reply::is_ready() const {
  const std::lock_guard lock{state_->mutex};
  return state_->result.has_value();
}

outcome virtual_reply::result() const {
  const std::lock_guard lock{state_->mutex};
  if (!state_->result)
    throw exception{errc::invalid_argument, "the request has not been answered yet: let virtual time pass first, by "
                                            "advance(), run_until() or get()"};
  return *state_->result;
}

time_point virtual_reply::answered_at() const {
  static_cast<void>(result());
  const std::lock_guard lock{state_->mutex};
  return state_->at;
}

std::future_status virtual_reply::wait_for(nanoseconds at_most) const {
  std::unique_lock lock{state_->mutex};
  const auto is_there = [this] { return state_->result.has_value(); };
  return state_->changed.wait_for(lock, at_most, is_there) ? std::future_status::ready : std::future_status::timeout;
}

completion virtual_reply::get() const {
  if (wait_for(std::chrono::hours{1}) == std::future_status::timeout)
    throw exception{errc::deadline_exceeded, "the request has not been answered within an hour of virtual time"};
  outcome seen = result();
  if (const error* failure = failure_of(seen)) throw exception{*failure};
  return std::get<completion>(seen);
}

std::string describe(const virtual_event& one) {
  return "at " + troupe::describe(one.at) + ": " + troupe::describe(one.event);
}

world_event world_in_virtual_time::status() const {
  return shared().status();
}

buffer world_in_virtual_time::allocate(rank where, std::size_t size_bytes) const {
  return shared().on.pools[place_of(where, status())]->allocate(size_bytes);
}

const std::shared_ptr<device>& world_in_virtual_time::device_of(rank where) const {
  return shared().on.devices[place_of(where, status())];
}

buffer world_in_virtual_time::allocate_pinned(std::size_t size_bytes) const {
  return troupe::allocate_pinned(shared().on.devices.front(), size_bytes);
}

void world_in_virtual_time::register_memory(std::size_t size_bytes) {
  shared().registered = shared()
                            .await<registration_reply>([&](std::shared_ptr<registration_promise> reply) {
                              shared().register_memory({size_bytes, epoch()}, std::move(reply));
                            })
                            .pool;
}

per_rank<buffer> world_in_virtual_time::allocate_all(std::size_t size_bytes) const {
  if (shared().registered) {
    try {
      return shared().registered->allocate(size_bytes);
    } catch (const exception& failure) { // the registered memory is full: use the ranks' pools
      if (failure.why().code != errc::out_of_memory) throw;
    }
  }
  return {local_ranks(), [&](rank self) { return allocate(self, size_bytes); }};
}

bool world_in_virtual_time::run_until(const std::function<bool()>& enough, nanoseconds at_most) {
  return shared().run_until(enough, at_most);
}

bool world_in_virtual_time::run_until_ready(troupe::epoch wanted, nanoseconds at_most) {
  return run_until(
      [&] {
        const world_event latest = status();
        return latest.phase == world_phase::ready && latest.epoch >= wanted;
      },
      at_most);
}

world_event world_in_virtual_time::wait_ready(troupe::epoch after, nanoseconds at_most) {
  static_cast<void>(run_until([&] { return is_ready_after(status(), after); }, at_most));
  return status();
}

const std::vector<virtual_event>& world_in_virtual_time::events() const noexcept {
  return shared().events;
}

fault_script& world_in_virtual_time::script() noexcept {
  return *shared().on.options.script;
}

mock_driver& world_in_virtual_time::devices() noexcept {
  return *shared().on.machine->api;
}

class virtual_world::impl final : public core {
public:
  impl(int ranks, virtual_options wanted) : core{ranks, std::move(wanted)} {
    where = std::make_unique<simulation::simulated_world>(on.terms, *on.machine, on.options.script, log);
    where->listen([this](const world_event& event) { events.push_back({steady_now() - on.began, event}); });
    on.run_until([this] { return status().phase != world_phase::forming; }, 2 * on.options.deadlines.form);
    on.options.script->attach(on.machine->api.get());
  }
  ~impl() override {
    on.options.script->attach(nullptr);
    on.options.script->release();
    if (!stop(on.longest_stop()))
      report_leak(
          {.code = errc::deadline_exceeded, .text = "a virtual world has not ended: it is " + describe(status())});
  }

  [[nodiscard]] world_event status() const override { return where->latest(); }
  bool run_until(const std::function<bool()>& enough, nanoseconds at_most) override {
    return on.run_until(enough, at_most);
  }
  void register_memory(const registration_request& asked, std::shared_ptr<registration_promise> reply) override {
    where->register_memory(asked, std::move(reply));
  }

  bool stop(nanoseconds at_most) {
    where->stop();
    return on.run_until([this] { return where->is_over(); }, at_most);
  }

  [[nodiscard]] std::size_t place_of(rank target) const { return testing::place_of(target, status()); }
  [[nodiscard]] rank origin_of(rank target) const { return rank{static_cast<int>(place_of(target))}; }

  simulation::trace log{false};
  std::unique_ptr<simulation::simulated_world> where;
};

virtual_world::virtual_world(int ranks, virtual_options options)
  : impl_{std::make_unique<impl>(ranks, std::move(options))} {}

virtual_world::~virtual_world() {
  if (fibers::current() == impl_->on.threads.get()) return;
  static auto* const left = new std::vector<std::unique_ptr<impl>>;
  left->push_back(std::move(impl_));
  report_leak({.code = errc::invalid_argument,
               .text = "a virtual world cannot end on this thread: destroy it on the one that constructed it"});
}

virtual_world::core& virtual_world::shared() const noexcept {
  return *impl_;
}

virtual_reply virtual_world::ask(std::vector<operation> parts, request_options options, call_site from) {
  if (options.epoch == troupe::epoch{}) options.epoch = epoch();
  return ask(make_request(std::move(parts), std::move(options), from));
}

virtual_reply virtual_world::ask(world_request asked) {
  auto [reply, seen] = virtual_reply::make();
  const fibers::no_wait_scope no_wait;
  impl_->where->gate().accept(std::move(asked), std::move(reply), the_client);
  return seen;
}

virtual_reply virtual_world::ask(rank target, operation what, request_options options) {
  return ask(target, make_request(std::move(what), std::move(options)));
}

virtual_reply virtual_world::ask(rank target, rank_request asked) {
  const world_event now = status();
  auto [reply, seen] = virtual_reply::make();
  const auto began_with = static_cast<int>(impl_->on.devices.size());
  const bool is_stale = asked.epoch == troupe::epoch{} ? target.value() < began_with : asked.epoch != now.epoch;
  if (is_stale && target.value() >= now.world_size) {
    reply.deliver(stale_epoch_error(asked.epoch, now.epoch));
    return seen;
  }
  collective_state& state_of_rank = impl_->where->rank_state(impl_->origin_of(target));
  const fibers::no_wait_scope no_wait;
  state_of_rank.accept(std::move(asked), std::move(reply), the_client);
  return seen;
}

virtual_reply virtual_world::copy(rank target, operand from, operand to, request_options options) {
  if (options.epoch == troupe::epoch{}) options.epoch = epoch();
  return ask(target, troupe::copy{std::move(from), std::move(to)}, std::move(options));
}

std::shared_ptr<captured_plan> virtual_world::capture(capture_function function, plan_options options) {
  return capture(capture_request{.function = std::move(function), .options = std::move(options), .epoch = epoch()});
}

std::shared_ptr<captured_plan> virtual_world::capture(plan_steps steps, plan_options options) {
  return capture(capture_request{.steps = std::move(steps), .options = std::move(options), .epoch = epoch()});
}

std::shared_ptr<captured_plan> virtual_world::capture(const capture_request& asked) {
  return impl_
      ->await<capture_reply>(
          [&](std::shared_ptr<capture_answer> reply) { impl_->where->capture(rank{0}, asked, std::move(reply)); })
      .plan;
}

nanoseconds virtual_world::now() const {
  return steady_now() - impl_->on.began;
}

void virtual_world::advance(nanoseconds span) {
  impl_->on.threads->sleep(span);
}

void virtual_world::jump(nanoseconds span) {
  impl_->on.threads->jump(span);
}

void virtual_world::end_rank(rank target) {
  impl_->where->end_rank(impl_->origin_of(target));
}

bool virtual_world::stop(nanoseconds at_most) {
  return impl_->stop(at_most);
}

std::size_t virtual_world::forbidden_waits() const {
  return impl_->on.threads->forbidden_waits();
}

} // namespace troupe::testing

template class troupe::collective_methods<troupe::testing::virtual_world, troupe::arguments_of_all,
                                          troupe::testing::virtual_reply>;
