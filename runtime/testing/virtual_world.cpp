#include <troupe/device/memory_pool.hpp>
#include <troupe/device/unreturned.hpp>
#include <troupe/runtime/simulation/simulated_world.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <string>
#include <utility>

namespace troupe::testing {

namespace {

/// Under which the world's ranks know who asks; a test is one client.
constexpr std::uint64_t the_client = 1;

/// Checked before anything is made.
virtual_options checked(int ranks, virtual_options options) {
  if (ranks < 1)
    throw exception{errc::invalid_argument,
                    "a world of " + std::to_string(ranks) + " ranks is none: it needs 1 at least"};
  if (fibers::current() != nullptr)
    throw exception{errc::invalid_argument, "this thread has a virtual world already, or buffers of one: they must end "
                                            "before another begins"};
  check(options.recovery);
  if (!options.script) options.script = std::make_shared<fault_script>();
  return options;
}

fibers::chooser chooser_of(std::optional<std::uint64_t> seed) {
  if (!seed) return [](std::size_t) -> std::size_t { return 0; };
  return
      [chance = simulation::dice{simulation::mix(*seed, 4)}](std::size_t count) mutable { return chance.below(count); };
}

/// A device that holds the threads which serve it, so that buffers may outlive their world.
std::shared_ptr<device> with_threads(std::shared_ptr<fibers> threads, std::shared_ptr<device> where) {
  struct both {
    std::shared_ptr<fibers> threads; // ends after the device
    std::shared_ptr<device> where;
  };
  const auto held = std::make_shared<both>(both{std::move(threads), std::move(where)});
  return {held, held->where.get()};
}

} // namespace

class virtual_world::stage {
public:
  stage(int ranks, virtual_options wanted)
    : options{checked(ranks, std::move(wanted))},
      threads{std::make_shared<fibers>(chooser_of(options.seed))},
      began{steady_now()},
      terms{.ranks = ranks,
            .memory_bytes = options.memory_bytes,
            .strategy = options.strategy,
            .limits = options.limits,
            .deadlines = options.deadlines,
            .recovery = options.recovery,
            .fused = options.fusion,
            .sequencing = options.sequencing,
            .pending = options.pending,
            .ordering = options.ordering,
            .seed = options.seed},
      machine{std::make_unique<simulation::simulated_machine>(terms)} {
    for (int i = 0; i < ranks; ++i) {
      ranks_of_it.emplace_back(i);
      devices.push_back(with_threads(threads, machine->devices[static_cast<std::size_t>(i)]));
      pools.push_back(memory_pool::create(devices.back()));
    }
    where = std::make_unique<simulation::simulated_world>(terms, *machine, options.script, log);
    where->listen([this](const world_event& event) { events.push_back({steady_now() - began, event}); });
    run_until([this] { return status().phase != world_phase::forming; }, 2 * options.deadlines.form);
    options.script->attach(machine->api.get());
  }
  stage(const stage&) = delete;
  stage& operator=(const stage&) = delete;

  ~stage() {
    options.script->attach(nullptr);
    options.script->release();
    if (!stop(longest_stop()))
      report_unreturned(
          {.code = errc::deadline_exceeded, .text = "a virtual world has not ended: it is " + describe(status())});
    where = nullptr;
    pools.clear();
    devices.clear();
    machine = nullptr;
    // Calls that hung return at last.
    threads->run([this] { return threads->living() == 0; }, later(steady_now(), longest_stop()));
  }

  [[nodiscard]] world_event status() const { return where->latest(); }

  bool run_until(const std::function<bool()>& enough, nanoseconds at_most) {
    const time_point until = later(steady_now(), at_most);
    if (threads->run(enough, until)) return true;
    if (until > steady_now()) threads->sleep(until - steady_now()); // there was nothing to do until then
    return enough();
  }

  bool stop(nanoseconds at_most) {
    where->stop();
    return run_until([this] { return where->is_over(); }, at_most);
  }

  /// Everything that can take long, one behind the other, for each rebuild.
  [[nodiscard]] nanoseconds longest_stop() const {
    const world_deadlines& most = options.deadlines;
    nanoseconds all = options.limits.hang + options.limits.launch + most.operation + most.drain + most.release;
    for (std::size_t i = 0; i <= options.recovery.rebuilds; ++i) all += most.form + most.abort;
    return all + total_backoff(options.recovery) + std::chrono::seconds{1};
  }

  [[nodiscard]] std::size_t index_of(rank whom) const {
    if (whom < rank{0} || whom.value() >= terms.ranks)
      throw exception{errc::invalid_argument, "there is no rank " + to_string(whom) + ": the world has " +
                                                  std::to_string(terms.ranks) + ", counted from 0"};
    return static_cast<std::size_t>(whom.value());
  }

  virtual_options options;
  std::shared_ptr<fibers> threads;
  time_point began;
  simulation::simulated_terms terms;
  simulation::trace log{false};
  std::unique_ptr<simulation::simulated_machine> machine;
  std::vector<rank> ranks_of_it;
  std::vector<std::shared_ptr<device>> devices;
  std::vector<std::shared_ptr<memory_pool>> pools;
  std::vector<virtual_event> events;
  std::unique_ptr<simulation::simulated_world> where;
};

virtual_world::virtual_world(int ranks, virtual_options options)
  : stage_{std::make_unique<stage>(ranks, std::move(options))} {}

virtual_world::~virtual_world() = default;

int virtual_world::size() const noexcept {
  return stage_->terms.ranks;
}

const std::vector<rank>& virtual_world::local_ranks() const noexcept {
  return stage_->ranks_of_it;
}

world_event virtual_world::status() const {
  return stage_->status();
}

buffer virtual_world::allocate(rank where, std::size_t size_bytes) const {
  return stage_->pools[stage_->index_of(where)]->allocate(size_bytes);
}

buffer virtual_world::allocate_pinned(std::size_t size_bytes) const {
  return troupe::allocate_pinned(stage_->devices.front(), size_bytes);
}

const std::shared_ptr<device>& virtual_world::device_of(rank where) const {
  return stage_->devices[stage_->index_of(where)];
}

virtual_reply virtual_world::ask(std::vector<operation> parts, nanoseconds deadline) {
  return ask(world_request{.parts = std::move(parts), .epoch = epoch(), .deadline = deadline});
}

virtual_reply virtual_world::ask(world_request asked) {
  auto [reply, seen] = virtual_reply::make();
  const fibers::must_not_wait at_the_door;
  stage_->where->entrance().accept(std::move(asked), std::move(reply));
  return seen;
}

virtual_reply virtual_world::ask(rank whom, operation what, lane in, nanoseconds deadline) {
  return ask(whom, rank_request{.what = std::move(what), .epoch = epoch(), .deadline = deadline, .lane = in});
}

virtual_reply virtual_world::ask(rank whom, rank_request asked) {
  static_cast<void>(stage_->index_of(whom));
  auto [reply, seen] = virtual_reply::make();
  const fibers::must_not_wait at_the_door;
  stage_->where->rank_state(whom).accept(std::move(asked), std::move(reply), the_client);
  return seen;
}

virtual_reply virtual_world::ask(retry_safe_mark, std::vector<operation> parts, nanoseconds deadline) {
  return ask(world_request{.parts = std::move(parts), .epoch = epoch(), .deadline = deadline, .retry_safe = true});
}

virtual_reply virtual_world::ask(retry_safe_mark, rank whom, operation what, lane in, nanoseconds deadline) {
  return ask(
      whom,
      rank_request{.what = std::move(what), .epoch = epoch(), .deadline = deadline, .lane = in, .retry_safe = true});
}

retry_counts virtual_world::retries() const {
  return stage_->where->retries();
}

virtual_reply virtual_world::all_reduce(std::span<const buffer> send, std::span<const buffer> recv, std::size_t count,
                                        dtype type, reduction op) {
  if (send.size() != local_ranks().size() || recv.size() != send.size())
    throw exception{errc::invalid_argument, "an all_reduce of " + std::to_string(size()) + " ranks needs as many " +
                                                "buffers, not " + std::to_string(send.size()) + " and " +
                                                std::to_string(recv.size())};
  std::vector<operation> parts;
  for (std::size_t i = 0; i < send.size(); ++i)
    parts.emplace_back(troupe::all_reduce{.send = send[i], .recv = recv[i], .count = count, .type = type, .op = op});
  return ask(std::move(parts));
}

virtual_reply virtual_world::barrier() {
  return ask(std::vector<operation>(local_ranks().size(), troupe::barrier{}));
}

virtual_reply virtual_world::copy(rank whom, buffer from, buffer to) {
  return ask(whom, troupe::copy{std::move(from), std::move(to)});
}

nanoseconds virtual_world::now() const {
  return steady_now() - stage_->began;
}

void virtual_world::advance(nanoseconds span) {
  stage_->threads->sleep(span);
}

bool virtual_world::run_until(const std::function<bool()>& enough, nanoseconds at_most) {
  return stage_->run_until(enough, at_most);
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
  stage_->threads->jump(span);
}

void virtual_world::end_rank(rank whom) {
  static_cast<void>(stage_->index_of(whom));
  stage_->where->end_rank(whom);
}

bool virtual_world::stop(nanoseconds at_most) {
  return stage_->stop(at_most);
}

const std::vector<virtual_event>& virtual_world::events() const noexcept {
  return stage_->events;
}

fault_script& virtual_world::script() noexcept {
  return *stage_->options.script;
}

mock_driver& virtual_world::devices() noexcept {
  return *stage_->machine->api;
}

std::size_t virtual_world::forbidden_waits() const {
  return stage_->threads->forbidden_waits();
}

} // namespace troupe::testing
