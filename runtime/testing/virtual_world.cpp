#include <troupe/actors/rank/collective_state.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/testing/virtual_machine.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <chrono>
#include <optional>
#include <utility>
#include <variant>

namespace troupe::testing {

namespace {

/// The client number of the test for the world and its ranks; a test is one client.
constexpr std::uint64_t the_client = 1;

constexpr nanoseconds for_ever{std::chrono::hours{1}};

} // namespace

class virtual_world::stage {
public:
  stage(int ranks, virtual_options wanted) : on{ranks, std::move(wanted)} {
    where = std::make_unique<simulation::simulated_world>(on.terms, *on.machine, on.options.script, log);
    where->listen([this](const world_event& event) { events.push_back({steady_now() - on.began, event}); });
    on.run_until([this] { return status().phase != world_phase::forming; }, 2 * on.options.deadlines.form);
    on.options.script->attach(on.machine->api.get());
  }
  stage(const stage&) = delete;
  stage& operator=(const stage&) = delete;

  ~stage() {
    on.options.script->attach(nullptr);
    on.options.script->release();
    if (!stop(on.longest_stop()))
      report_leak(
          {.code = errc::deadline_exceeded, .text = "a virtual world has not ended: it is " + describe(status())});
  }

  [[nodiscard]] world_event status() const { return where->latest(); }

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

  [[nodiscard]] std::size_t place_of(rank whom) const { return testing::place_of(whom, status()); }
  [[nodiscard]] rank origin_of(rank whom) const { return rank{static_cast<int>(place_of(whom))}; }

  virtual_machine on;
  simulation::trace log{false};
  std::vector<virtual_event> events;
  std::shared_ptr<registered_pool> registered; ///< Null if none has been registered.
  std::unique_ptr<simulation::simulated_world> where;
};

virtual_world::virtual_world(int ranks, virtual_options options)
  : stage_{std::make_unique<stage>(ranks, std::move(options))} {}

virtual_world::~virtual_world() = default;

int virtual_world::size() const {
  return status().world_size;
}

std::vector<rank> virtual_world::local_ranks() const {
  return status().local_ranks;
}

world_event virtual_world::status() const {
  return stage_->status();
}

buffer virtual_world::allocate(rank where, std::size_t size_bytes) const {
  return stage_->on.pools[stage_->place_of(where)]->allocate(size_bytes);
}

buffer virtual_world::allocate_pinned(std::size_t size_bytes) const {
  return troupe::allocate_pinned(stage_->on.devices.front(), size_bytes);
}

const std::shared_ptr<device>& virtual_world::device_of(rank where) const {
  return stage_->on.devices[stage_->place_of(where)];
}

virtual_reply virtual_world::ask(std::vector<operation> parts, request_options options) {
  if (options.epoch == troupe::epoch{}) options.epoch = epoch();
  return ask(make_request(std::move(parts), std::move(options)));
}

virtual_reply virtual_world::perform(std::vector<operation> parts, request_options options, call_site) {
  return ask(std::move(parts), std::move(options));
}

std::size_t virtual_world::part_count() const {
  return local_ranks().size();
}

virtual_reply virtual_world::ask(world_request asked) {
  auto [reply, seen] = virtual_reply::make();
  const fibers::must_not_wait at_the_door;
  stage_->where->gate().accept(std::move(asked), std::move(reply), the_client);
  return seen;
}

virtual_reply virtual_world::ask(rank whom, operation what, request_options options) {
  return ask(whom, make_request(std::move(what), std::move(options)));
}

virtual_reply virtual_world::ask(rank whom, rank_request asked) {
  const world_event now = status();
  auto [reply, seen] = virtual_reply::make();
  const auto began_with = static_cast<int>(stage_->on.devices.size());
  const bool is_stale = asked.epoch == troupe::epoch{} ? whom.value() < began_with : asked.epoch != now.epoch;
  if (is_stale && whom.value() >= now.world_size) {
    reply.deliver(stale_epoch_error(asked.epoch, now.epoch));
    return seen;
  }
  collective_state& door = stage_->where->rank_state(stage_->origin_of(whom));
  const fibers::must_not_wait at_the_door;
  door.accept(std::move(asked), std::move(reply), the_client);
  return seen;
}

retry_counts virtual_world::retries() const {
  return stage_->where->retries();
}

virtual_reply virtual_world::transfer(rank source, operand from, rank destination, operand to, std::size_t count,
                                      dtype type, int tag, request_options options) {
  return ask(transfer_parts(size(), source, std::move(from), destination, std::move(to), count, type, tag),
             std::move(options));
}

virtual_reply virtual_world::copy(rank whom, operand from, operand to, request_options options) {
  if (options.epoch == troupe::epoch{}) options.epoch = epoch();
  return ask(whom, troupe::copy{std::move(from), std::move(to)}, std::move(options));
}

void virtual_world::register_memory(std::size_t size_bytes) {
  stage_->registered = stage_
                           ->await<registration_reply>([&](std::shared_ptr<registration_promise> reply) {
                             stage_->where->register_memory({size_bytes, epoch()}, std::move(reply));
                           })
                           .pool;
}

per_rank<buffer> virtual_world::allocate_all(std::size_t size_bytes) const {
  if (stage_->registered) {
    try {
      return stage_->registered->allocate(size_bytes);
    } catch (const exception& failure) { // full: the ranks' pools have more
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
  return stage_
      ->await<capture_reply>(
          [&](std::shared_ptr<capture_answer> reply) { stage_->where->capture(asked, std::move(reply)); })
      .plan;
}

virtual_reply virtual_world::replay(const std::shared_ptr<captured_plan>& plan, request_options options) {
  return ask(std::vector<operation>(part_count(), troupe::replay{plan}), std::move(options));
}

nanoseconds virtual_world::now() const {
  return steady_now() - stage_->on.began;
}

void virtual_world::advance(nanoseconds span) {
  stage_->on.threads->sleep(span);
}

bool virtual_world::run_until(const std::function<bool()>& enough, nanoseconds at_most) {
  return stage_->on.run_until(enough, at_most);
}

bool virtual_world::run_until_ready(troupe::epoch wanted, nanoseconds at_most) {
  return run_until(
      [&] {
        const world_event latest = status();
        return latest.phase == world_phase::ready && latest.epoch >= wanted;
      },
      at_most);
}

void virtual_world::jump(nanoseconds span) {
  stage_->on.threads->jump(span);
}

void virtual_world::end_rank(rank whom) {
  stage_->where->end_rank(stage_->origin_of(whom));
}

bool virtual_world::stop(nanoseconds at_most) {
  return stage_->stop(at_most);
}

const std::vector<virtual_event>& virtual_world::events() const noexcept {
  return stage_->events;
}

fault_script& virtual_world::script() noexcept {
  return *stage_->on.options.script;
}

mock_driver& virtual_world::devices() noexcept {
  return *stage_->on.machine->api;
}

std::size_t virtual_world::forbidden_waits() const {
  return stage_->on.threads->forbidden_waits();
}

} // namespace troupe::testing
