#include <troupe/device/mock/mock_engine.hpp>
#include <troupe/device/mock/mock_handle.hpp>
#include <troupe/device/topology/thread_binding.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

namespace {

using namespace std::chrono_literals;

// The host opens a gate with a plain store and no notification, so gates are polled: quickly at first, because most
// tests open them soon, then rarely, so that a forgotten gate uses little CPU time.
constexpr auto first_poll = 50us;
constexpr auto slowest_poll = 1000us;

} // namespace

namespace {

/// The wakers of the engines that run in threads, each with the scheduler of its thread. A simulation must not affect
/// another one in the same process. Never destroyed, because engines may be owned by static objects.
struct running_wakers {
  struct entry {
    mock_waker* waker;
    const thread_scheduler* scheduler;

    friend bool operator==(const entry&, const entry&) = default;
  };
  std::mutex mutex;
  std::vector<entry> entries;
};

running_wakers& wakers_of_process() {
  static auto* const all = new running_wakers;
  return *all;
}

/// Enters a waker into the list of this process for the lifetime of the object.
class listed_waker {
public:
  explicit listed_waker(mock_waker& waker) : entry_{&waker, thread_scheduler::current()} {
    const std::lock_guard lock{wakers_of_process().mutex};
    wakers_of_process().entries.push_back(entry_);
  }
  listed_waker(const listed_waker&) = delete;
  listed_waker& operator=(const listed_waker&) = delete;
  ~listed_waker() {
    const std::lock_guard lock{wakers_of_process().mutex};
    std::erase(wakers_of_process().entries, entry_);
  }

private:
  running_wakers::entry entry_;
};

} // namespace

void mock_waker::wake_all() noexcept {
  running_wakers& all = wakers_of_process();
  const std::lock_guard lock{all.mutex};
  for (const running_wakers::entry& one : all.entries)
    if (one.scheduler == thread_scheduler::current()) one.waker->wake();
}

void mock_waker::wake() noexcept {
  {
    const std::lock_guard lock{mutex_};
    rung_ = true;
  }
  rung_changed_.notify_all();
}

void mock_waker::expect() noexcept {
  const std::lock_guard lock{mutex_};
  rung_ = false;
}

void mock_waker::park(std::optional<std::chrono::microseconds> at_most) {
  std::unique_lock lock{mutex_};
  const auto rung = [this] { return rung_; };
  if (at_most)
    rung_changed_.wait_for(lock, *at_most, rung);
  else
    rung_changed_.wait(lock, rung);
}

/// The right to run tasks. A task that waits for this role would wait for itself, so it gets an error instead.
class mock_engine::running_role {
public:
  explicit running_role(mock_engine& engine) : running_role{engine, std::unique_lock{engine.runner_guard_}} {}
  /// Takes the role if no other thread has it. is_held() says whether it did.
  running_role(mock_engine& engine, std::try_to_lock_t only)
    : running_role{engine, std::unique_lock{engine.runner_guard_, only}} {}
  running_role(const running_role&) = delete;
  running_role& operator=(const running_role&) = delete;
  ~running_role() {
    if (is_held()) engine_.runner_.store({}, std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_held() const noexcept { return held_.owns_lock(); }

  static void refuse_inside(const mock_engine& engine) {
    if (engine.runner_.load(std::memory_order_relaxed) == std::this_thread::get_id())
      throw exception{errc::invalid_argument, "a host function must not wait for the device that runs it"};
  }

private:
  running_role(mock_engine& engine, std::unique_lock<std::mutex> held) : engine_{engine}, held_{std::move(held)} {
    if (is_held()) engine.runner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }

  mock_engine& engine_;
  std::unique_lock<std::mutex> held_;
};

mock_engine::mock_engine(int device_count, engine_mode mode) : mode_{mode} {
  if (device_count < 0)
    throw exception{errc::invalid_argument,
                    "the number of mock devices is " + std::to_string(device_count) + " and must not be negative"};
  devices_.resize(static_cast<std::size_t>(device_count));
  if (mode_ == engine_mode::threaded)
    thread_ = worker{[this] {
      name_this_thread("troupe/mock");
      run();
    }};
}

mock_engine::~mock_engine() {
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  waker_->wake();
  if (thread_.joinable()) thread_.join();
}

void mock_engine::require(device_id id) const {
  if (id.value() < 0 || static_cast<std::size_t>(id.value()) >= devices_.size())
    throw exception{errc::missing, "there is no device " + to_string(id) + ": the mock driver has " +
                                       std::to_string(devices_.size()) + " (numbered from 0)"};
}

mock_engine::device_state& mock_engine::state_of(device_id id) {
  require(id);
  return devices_[static_cast<std::size_t>(id.value())];
}

std::shared_ptr<mock_engine::queue> mock_engine::find(device_id id, native_stream handle) const {
  require(id);
  const auto found = streams_.find(number_of(handle));
  if (found == streams_.end())
    throw exception{errc::invalid_argument, "no such stream: it was destroyed, or another driver made it"};
  if (found->second->device != id)
    throw exception{errc::invalid_argument, "the stream belongs to device " + to_string(found->second->device) +
                                                ", not to device " + to_string(id)};
  return found->second;
}

native_stream mock_engine::create_stream(device_id id) {
  const std::lock_guard lock{mutex_};
  throw_if_failed_locked(id);
  const std::uint64_t number = next_mock_handle();
  streams_.emplace(number, std::make_shared<queue>(queue{.number = number, .device = id, .tasks = {}}));
  return to_native<native_stream>(number);
}

std::size_t mock_engine::streams(device_id id) {
  const std::lock_guard lock{mutex_};
  return static_cast<std::size_t>(
      std::ranges::count_if(streams_, [id](const auto& one) { return one.second->device == id; }));
}

void mock_engine::destroy_stream(device_id id, native_stream handle) {
  const std::lock_guard lock{mutex_};
  streams_.erase(find(id, handle)->number); // busy_ keeps a queue that has tasks
}

std::uint64_t mock_engine::push(const std::shared_ptr<queue>& line, std::unique_ptr<mock_task> task) {
  busy_.emplace(line->number, line);
  line->tasks.push_back(std::move(task));
  return ++line->enqueued;
}

void mock_engine::enqueue(device_id id, native_stream handle, std::unique_ptr<mock_task> task) {
  const bool is_brief = task->is_brief();
  std::shared_ptr<queue> line;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock{mutex_};
    throw_if_failed_locked(id);
    line = find(id, handle);
    throw_if_failed(*line);
    number = push(line, std::move(task));
    if (line->tasks.size() > 1) return; // the thread that ends the task before continues with this one
  }
  if (!is_brief || needs_runner(*line, number)) waker_->wake();
}

bool mock_engine::needs_runner(queue& line, std::uint64_t number) {
  if (mode_ == engine_mode::manual) return false;
  if (runner_.load(std::memory_order_relaxed) == std::this_thread::get_id()) return true; // a task enqueues it
  const running_role role{*this, std::try_to_lock};
  if (!role.is_held()) return true;
  lock_type lock{mutex_};
  if (line.finished + 1 != number) return false; // it has run, or was dropped
  if (state_of(line.device).armed) return true;  // a fault drops tasks of others, which may take long
  const round_outcome seen = step_head(lock, line);
  return seen.moved || seen.polls;
}

void mock_engine::enqueue_give_back(device_id id, native_stream handle, std::unique_ptr<mock_task> task) {
  {
    const std::lock_guard lock{mutex_};
    const std::shared_ptr<queue> line = find(id, handle);
    if (poison_) return;
    push(line, std::move(task));
    if (line->tasks.size() > 1) return;
  }
  waker_->wake();
}

progress mock_engine::query(device_id id, native_stream handle) {
  const std::lock_guard lock{mutex_};
  throw_if_failed_locked(id);
  const std::shared_ptr<queue> line = find(id, handle);
  throw_if_failed(*line);
  return line->tasks.empty() ? progress::reached : progress::pending;
}

void mock_engine::synchronize(device_id id, native_stream handle) {
  running_role::refuse_inside(*this);
  std::unique_lock lock{mutex_};
  throw_if_failed_locked(id);
  const std::shared_ptr<queue> line = find(id, handle);
  const std::uint64_t target = line->enqueued;
  if (mode_ == engine_mode::manual)
    drain_manually(lock, *line, target);
  else
    finished_changed_.wait(lock, [&] { return line->finished >= target; });
  throw_if_failed_locked(id);
  throw_if_failed(*line);
}

void mock_engine::throw_if_failed(const queue& line) {
  if (line.failure) throw exception{*line.failure};
}

void mock_engine::drain_manually(lock_type& lock, queue& line, std::uint64_t target) {
  lock.unlock(); // the role is acquired before the mutex
  {
    const running_role role{*this};
    lock.lock();
    while (line.finished < target && step_head(lock, line).moved) {
    }
    lock.unlock();
  }
  lock.lock();
  if (line.finished >= target) return;
  lock.unlock();
  run_until_blocked();
  lock.lock();
  if (line.finished < target)
    throw exception{errc::invalid_argument, "waiting for this stream would never end: in manual mode only the waiting "
                                            "thread could complete the work that it waits for"};
}

void mock_engine::run_until_blocked() {
  running_role::refuse_inside(*this);
  if (mode_ != engine_mode::manual)
    throw exception{errc::invalid_argument,
                    "run_until_blocked() needs manual mode: in threaded mode a thread runs the streams"};
  run_rounds();
}

void mock_engine::run() {
  const listed_waker listed{*waker_};
  auto patience = first_poll;
  while (true) {
    waker_->expect(); // reset before the check, so that a later change is not missed
    const round_outcome seen = run_rounds();
    {
      const std::lock_guard lock{mutex_};
      if (stopping_) return;
    }
    patience = seen.moved ? first_poll : std::min(2 * patience, slowest_poll);
    waker_->park(seen.polls ? std::optional{patience} : std::nullopt);
  }
}

/// Runs rounds until no task makes progress. Returns whether any task made progress, and whether tasks that poll were
/// left in the last round.
mock_engine::round_outcome mock_engine::run_rounds() {
  const running_role role{*this};
  lock_type lock{mutex_};
  round_outcome all;
  for (bool moved = true; moved && !stopping_;) {
    moved = false;
    all.polls = false;
    for (auto at = busy_.begin(); at != busy_.end() && !stopping_;) {
      const std::shared_ptr<queue> line = at->second;
      const round_outcome one = step_head(lock, *line);
      moved |= one.moved;
      all.polls |= one.polls;
      at = busy_.upper_bound(line->number); // the map may have changed meanwhile
    }
    all.moved |= moved;
  }
  return all;
}

/// Runs the first task of \p line without holding the lock, because the task and its destructor may take long.
mock_engine::round_outcome mock_engine::step_head(lock_type& lock, queue& line) {
  std::unique_ptr<mock_task> task = std::move(line.tasks.front());
  std::optional<error> failure;
  if (task->is_work()) failure.swap(state_of(line.device).armed);
  lock.unlock();

  progress result = progress::reached;
  if (!failure) {
    try {
      result = task->step();
    } catch (...) {
      failure = current_error();
    }
  }
  const bool is_pending = !failure && result == progress::pending;
  const bool polls = is_pending && task->polls();
  const bool advanced = is_pending && task->advanced();
  if (failure || result == progress::reached) task.reset();

  lock.lock();
  if (failure) {
    fail(lock, line, std::move(*failure));
    return {.moved = true};
  }
  if (result == progress::pending) {
    line.tasks.front() = std::move(task);
    return {.moved = advanced, .polls = polls};
  }
  line.tasks.pop_front();
  ++line.finished;
  if (line.tasks.empty()) busy_.erase(line.number);
  finished_changed_.notify_all();
  return {.moved = true};
}

void mock_engine::fail(lock_type& lock, queue& line, error why) {
  line.failure = why;
  const bool sticky = why.code == errc::process_poisoned;
  const device_id failed = line.device;
  if (sticky)
    poison_ = why;
  else if (device_state& state = state_of(failed); !state.failure)
    state.failure = why; // the first failure is the cause of later ones

  std::vector<std::deque<std::unique_ptr<mock_task>>> dropped;
  std::erase_if(busy_, [&](const auto& entry) {
    queue& hit = *entry.second;
    if (!sticky && hit.device != failed) return false;
    const auto is_lost_work = [](const auto& task) { return task != nullptr && task->is_work(); };
    if (!hit.failure && std::ranges::any_of(hit.tasks, is_lost_work)) hit.failure = why;
    hit.finished += hit.tasks.size();
    dropped.push_back(std::exchange(hit.tasks, {}));
    return true;
  });
  finished_changed_.notify_all();
  lock.unlock();
  dropped.clear();
  lock.lock();
}

void mock_engine::throw_if_failed(device_id id) {
  const std::lock_guard lock{mutex_};
  throw_if_failed_locked(id);
}

void mock_engine::throw_if_poisoned() {
  const std::lock_guard lock{mutex_};
  if (poison_) throw exception{*poison_};
}

void mock_engine::throw_if_failed_locked(device_id id) {
  device_state& state = state_of(id);
  if (poison_) throw exception{*poison_};
  if (!state.failure) return;
  error why = std::move(*state.failure);
  state.failure.reset();
  throw exception{std::move(why)};
}

void mock_engine::fail_next(device_id id, error why) {
  if (!why) throw exception{errc::invalid_argument, "fail_next() needs an error code other than errc::none"};
  const std::lock_guard lock{mutex_};
  state_of(id).armed = std::move(why);
}

} // namespace troupe
