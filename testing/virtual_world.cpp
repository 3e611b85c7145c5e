#include <troupe/actors/rank/collective_state.hpp>
#include <troupe/collectives/operation/collective_methods_definitions.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/testing/virtual_machine.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <chrono>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::testing {

namespace {

/// The client number of the test for the world and its ranks; a test is one client.
constexpr std::uint64_t the_client = 1;

constexpr nanoseconds for_ever{std::chrono::hours{1}};

} // namespace

world_event world_in_virtual_time::status() const {
  return shared().status();
}

buffer world_in_virtual_time::allocate(rank where, std::size_t size_bytes) const {
  return shared().on.pools[place_of(where, status())]->allocate(size_bytes);
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
  ~impl() {
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

  bool stop(nanoseconds at_most) {
    where->stop();
    return on.run_until([this] { return where->is_over(); }, at_most);
  }

  /// Returns the answer to \p ask, which arrives while time passes.
  template <class Value, class Ask>
  [[nodiscard]] Value await(const Ask& ask) {
    const auto seen = std::make_shared<std::optional<std::variant<Value, error>>>();
    ask(std::make_shared<value_promise<Value>>(
        [seen](std::variant<Value, error> result) { *seen = std::move(result); }));
    if (!on.run_until([&] { return seen->has_value(); }, for_ever))
      throw exception{errc::deadline_exceeded, "there is no answer after an hour of virtual time"};
    if (error* why = std::get_if<error>(&**seen)) throw exception{std::move(*why)};
    return std::get<Value>(std::move(**seen));
  }

  [[nodiscard]] std::size_t place_of(rank target) const { return testing::place_of(target, status()); }
  [[nodiscard]] rank origin_of(rank target) const { return rank{static_cast<int>(place_of(target))}; }

  simulation::trace log{false};
  std::shared_ptr<registered_pool> registered; ///< Null if none has been registered.
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

buffer virtual_world::allocate_pinned(std::size_t size_bytes) const {
  return troupe::allocate_pinned(impl_->on.devices.front(), size_bytes);
}

const std::shared_ptr<device>& virtual_world::device_of(rank where) const {
  return impl_->on.devices[impl_->place_of(where)];
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

void virtual_world::register_memory(std::size_t size_bytes) {
  impl_->registered = impl_
                          ->await<registration_reply>([&](std::shared_ptr<registration_promise> reply) {
                            impl_->where->register_memory({size_bytes, epoch()}, std::move(reply));
                          })
                          .pool;
}

per_rank<buffer> virtual_world::allocate_all(std::size_t size_bytes) const {
  if (impl_->registered) {
    try {
      return impl_->registered->allocate(size_bytes);
    } catch (const exception& failure) { // the registered memory is full: use the ranks' pools
      if (failure.why().code != errc::out_of_memory) throw;
    }
  }
  return {local_ranks(), [&](rank self) { return allocate(self, size_bytes); }};
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
