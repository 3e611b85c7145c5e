#include <troupe/actors.hpp>
#include <troupe/actors/world/request_gate.hpp>
#include <troupe/collectives/operation/collective_methods_definitions.hpp>
#include <troupe/device/keep_for_good.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/threads/own_thread.hpp>
#include <troupe/runtime/interop/ask_into.hpp>
#include <troupe/runtime/world.hpp>
#include <troupe/runtime/world_core.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>

namespace troupe {

namespace {

/// Maximum number of worlds that may be ending while others serve. Each uses threads and completion slots until it has
/// ended.
constexpr std::ptrdiff_t most_ending = 8;

/// Returns the number of strong handles to \p one. Other threads may change the number meanwhile.
template <class Handle>
[[nodiscard]] std::size_t holders_of(const Handle& one) {
  const auto counted = caf::actor_cast<caf::strong_actor_ptr>(one);
  return counted ? counted->strong_refs.load() - 1 : 0;
}

bool has_stopped(const world_event& event) {
  return event.phase == world_phase::stopped;
}

/// Sets the current epoch if \p options name none, so that the request is refused if the world is rebuilt before it
/// arrives (EPO-1).
request_options in_current_epoch(request_options options, const world& of) {
  if (options.epoch == epoch{}) options.epoch = of.epoch();
  return options;
}

/// Returns the sum of the deadlines of all phases of stopping, sub-worlds included.
nanoseconds longest_end(const world_deadlines& limits) {
  return 2 * (limits.form + 2 * limits.drain + limits.release + limits.abort);
}

} // namespace

bool world::core::is_alone() const {
  // A sub-world's actor is held here and by the parent. A rank's actor is held by its world and by the directory.
  if (holders_of(actor) > (is_split_off ? 2U : 1U)) return false;
  for (std::size_t place = 0; place < ranks->size(); ++place)
    if (holders_of(ranks->at(place)) > 2) return false;
  return true;
}

void world::core::give_memory_back() noexcept {
  std::shared_ptr<registered_pool> over;
  {
    const std::lock_guard lock{registered_guard};
    over = std::exchange(registered, nullptr);
  }
  for (const auto& pool : pools) {
    try {
      static_cast<void>(pool->return_excess());
    } catch (const exception&) { // a failed device, of which its world has told
    }
  }
}

void world_registry::add(core_ptr one) {
  std::vector<core_ptr> over; // destroyed after the lock is released: its listeners may hold handles
  const std::lock_guard lock{mutex_};
  over = sweep();
  worlds_.push_back(std::move(one));
}

world_registry::core_ptr world_registry::counted(core_ptr one, core_ptr parent) {
  auto* const shown = one.get();
  return {shown, [from = weak_from_this(), one = std::move(one), parent = std::move(parent)](world::core*) mutable {
            if (one->made.is_inherited()) {
              keep_for_good(std::move(one));
              return keep_for_good(std::move(parent));
            }
            if (const auto all = from.lock()) all->let_go(one);
            one = nullptr;
            parent = nullptr; // may end the parent
          }};
}

void world_registry::let_go(const core_ptr& one) noexcept {
  if (made_.is_inherited()) return;
  return_or_report("a world without handles", [&] {
    std::vector<core_ptr> over;
    const std::lock_guard lock{mutex_};
    if (closed_) return;
    dropped_.push_back(one);
    over = sweep();
  });
}

std::vector<world_registry::core_ptr> world_registry::sweep() {
  const auto first_over = std::stable_partition(
      worlds_.begin(), worlds_.end(), [](const core_ptr& one) { return !has_stopped(one->status->latest()); });
  std::vector<core_ptr> over{std::make_move_iterator(first_over), std::make_move_iterator(worlds_.end())};
  worlds_.erase(first_over, worlds_.end());
  std::erase_if(dropped_, [](const core_ptr& one) { return has_stopped(one->status->latest()); });
  for (const core_ptr& one : dropped_) {
    if (one->is_told_to_stop || (one->is_handed_out && !one->is_alone())) continue;
    one->is_told_to_stop = true;
    compat::post(one->actor, stop_world{});
  }
  return over;
}

void world_registry::await_ends() const {
  for (;;) {
    core_ptr first;
    {
      const std::lock_guard lock{mutex_};
      const auto is_ending = [](const core_ptr& one) {
        return one->is_told_to_stop && !has_stopped(one->status->latest());
      };
      if (std::ranges::count_if(dropped_, is_ending) <= most_ending) return;
      first = *std::ranges::find_if(dropped_, is_ending);
    }
    if (!has_stopped(first->status->wait(has_stopped, longest_end(first->deadlines)))) return;
  }
}

std::vector<world_registry::core_ptr> world_registry::all() const {
  const std::lock_guard lock{mutex_};
  return worlds_;
}

void world_registry::close() {
  const std::lock_guard lock{mutex_};
  closed_ = true;
  dropped_.clear();
}

world::world(std::shared_ptr<core> shared) noexcept : core_{std::move(shared)} {}

int world::size() const {
  return core_->own_status().peek([](const world_event& now) { return now.world_size; });
}

std::vector<rank> world::local_ranks() const {
  return core_->own_status().peek([](const world_event& now) { return now.local_ranks; });
}

epoch world::epoch() const {
  return core_->own_status().epoch();
}

world_event world::status() const {
  return core_->own_status().latest();
}

world_event world::wait_ready(troupe::epoch after, nanoseconds at_most) const {
  return core_->own_status().wait_ready(after, at_most);
}

world_event world::wait_ready(nanoseconds at_most) const {
  return wait_ready(troupe::epoch{}, at_most);
}

void world::wait_ready(troupe::epoch after, std::shared_ptr<value_promise<world_event>> reply) const {
  core_->own_status().when_ready(after, [reply = std::move(reply)](const world_event& now) { reply->deliver(now); });
}

void world::on_event(std::function<void(const world_event&)> heard) {
  core_->own_status().listen(std::move(heard));
}

const capabilities& world::capabilities() const {
  return *core_->able;
}

std::size_t world::core::place_of(rank target, const world_event& now) const {
  const auto found = std::ranges::find(now.local_ranks, target);
  if (found == now.local_ranks.end())
    throw exception{errc::invalid_argument,
                    now.local_ranks.empty()
                        ? "rank " + to_string(target) + " does not live in this process: no rank does"
                        : "rank " + to_string(target) + " does not live in this process: its ranks are " +
                              to_string(now.local_ranks.front()) + " to " + to_string(now.local_ranks.back()) +
                              (now.is_degraded() ? ", since others have left" : "")};
  const rank origin = now.origins[static_cast<std::size_t>(found - now.local_ranks.begin())];
  return static_cast<std::size_t>(std::ranges::find(local_ranks, origin) - local_ranks.begin());
}

std::shared_ptr<captured_plan> world::capture(capture_function function, plan_options options) {
  return capture(capture_request{.function = std::move(function), .options = std::move(options), .epoch = epoch()});
}

std::shared_ptr<captured_plan> world::capture(plan_steps steps, plan_options options) {
  return capture(capture_request{.steps = std::move(steps), .options = std::move(options), .epoch = epoch()});
}

std::shared_ptr<captured_plan> world::capture(capture_request asked) {
  auto [reply, future] = make_value_promise<capture_reply>();
  post_request(core_->own_actor(), std::move(asked), std::move(reply));
  return future.get().plan;
}

std::future<completion> world::ask(std::vector<operation> parts, request_options options, call_site from) {
  return ask(make_request(*this, std::move(parts), std::move(options), from));
}

std::future<completion> world::ask(world_request asked) {
  auto [reply, future] = make_future_promise();
  core_->status->gate()->accept(std::move(asked), std::move(reply));
  return std::move(future);
}

std::shared_ptr<const rank_function> world::register_function(std::string name, rank_function::work what) {
  return core_->functions->add(std::move(name), std::move(what));
}

std::future<completion> world::ask(rank target, operation what, request_options options, call_site from) {
  return ask(target, make_request(std::move(what), std::move(options), from));
}

// NOLINTNEXTLINE(readability-make-member-function-const): requests change the world
std::future<completion> world::ask(rank target, rank_request asked) {
  auto [reply, future] = make_future_promise();
  ask_into(*this, target, std::move(asked), std::move(reply));
  return std::move(future);
}

std::pair<reply_promise, overlapped> make_overlapped(std::size_t part_count) {
  auto [first, enqueued_future] = make_value_promise<enqueued>();
  auto [second, outcome_future] = make_future_promise();
  return {make_overlapped_promise(std::move(first), part_count, std::move(second)),
          overlapped{std::move(enqueued_future), std::move(outcome_future)}};
}

overlapped world::ask_overlapped(std::vector<operation> parts, request_options options, call_site from) {
  return ask_overlapped(make_request(*this, std::move(parts), std::move(options), from));
}

overlapped world::ask_overlapped(world_request asked) {
  auto [reply, futures] = make_overlapped(std::max<std::size_t>(asked.parts.size(), 1)); // an empty request is refused
  core_->status->gate()->accept(std::move(asked), std::move(reply));
  return std::move(futures);
}

overlapped world::ask_overlapped(rank target, operation what, request_options options, call_site from) {
  return ask_overlapped(target, make_request(std::move(what), std::move(options), from));
}

// NOLINTNEXTLINE(readability-make-member-function-const): requests change the world
overlapped world::ask_overlapped(rank target, rank_request asked) {
  auto [reply, futures] = make_overlapped(1);
  ask_into(*this, target, std::move(asked), std::move(reply));
  return std::move(futures);
}

std::future<troupe::credit> world::credit(std::size_t operations, std::size_t bytes, nanoseconds deadline) {
  auto [reply, future] = make_value_promise<troupe::credit>();
  post_request(core_->own_actor(), credit_request{operations, bytes, epoch(), deadline}, std::move(reply));
  return std::move(future);
}

std::future<void> world::leave(bool renumbers) {
  const auto done = std::make_shared<std::promise<void>>();
  leave(renumbers, std::make_shared<leave_answer>([done](std::variant<leave_reply, error> result) {
          if (auto* const why = std::get_if<error>(&result))
            done->set_exception(std::make_exception_ptr(exception{std::move(*why)}));
          else
            done->set_value();
        }));
  return done->get_future();
}

// NOLINTNEXTLINE(readability-make-member-function-const): it changes the world
void world::leave(bool renumbers, std::shared_ptr<value_promise<leave_reply>> reply) {
  post_request(core_->own_actor(), leave_request{renumbers}, std::move(reply));
}

pending_amount world::pending() const {
  return core_->pending->now();
}

std::future<completion> world::copy(rank target, operand from, operand to, request_options options, call_site site) {
  // No peer takes part, so nothing can be paired wrongly after a rebuild.
  return ask(target, troupe::copy{std::move(from), std::move(to)}, in_current_epoch(std::move(options), *this), site);
}

world_handle actor_of(const world& where) {
  world::core& all = core_of(where);
  all.is_handed_out = true;
  return world_handle{all.actor};
}

collective_handle collective_of(const world& where, rank target) {
  world::core& all = core_of(where);
  all.is_handed_out = true;
  return collective_handle{all.ranks->at(all.place_of(target))};
}

std::vector<split_world> world::split(std::vector<rank_group> groups) {
  auto [reply, future] = make_value_promise<split_reply>();
  const world_event before = status(); // the groups name ranks of this epoch; in another epoch the request is refused
  post_request(core_->own_actor(), split_request{std::move(groups), before.epoch}, std::move(reply));

  std::vector<split_world> found;
  for (sub_world& one : future.get().worlds) {
    found.push_back({std::move(one.group), std::nullopt});
    if (!one.parts) continue;
    auto shared = std::make_shared<core>();
    shared->status = std::move(one.parts->status);
    shared->count_events();
    shared->pending = std::move(one.parts->pending);
    shared->actor = std::move(one.parts->actor);
    shared->ranks = std::move(one.parts->ranks);
    for (const rank self : one.local_ranks) {
      const rank in_parent = found.back().group.members[static_cast<std::size_t>(self.value())];
      shared->pools.push_back(core_->pools[core_->place_of(in_parent, before)]);
    }
    shared->local_ranks = std::move(one.local_ranks);
    shared->deadlines = core_->deadlines;
    shared->ordering = core_->ordering;
    shared->staging = core_->staging;
    shared->exported = core_->exported;
    shared->functions = core_->functions;
    shared->registry = core_->registry;
    shared->able = core_->able;
    shared->is_split_off = true;
    if (const auto registry = core_->registry.lock()) {
      registry->add(shared);
      // A world with ranks in other processes does not end with its last handle here: each process would end its part
      // at another time.
      if (shared->local_ranks.size() == found.back().group.members.size())
        shared = registry->counted(std::move(shared), core_);
    }
    found.back().handle.emplace(world{std::move(shared)});
  }
  return found;
}

void world::stop() {
  if (core_->made.is_inherited()) return;
  compat::post(core_->actor, stop_world{});
  if (is_own_thread()) return; // the world may wait for this thread
  if (!has_stopped(core_->status->wait(has_stopped, longest_end(core_->deadlines))))
    throw exception{errc::deadline_exceeded, "the world did not stop in time: " + describe(status())};
  core_->uses->end();
  core_->give_memory_back();
}

template class collective_methods<world, arguments_of_all, std::future<completion>>;

} // namespace troupe
