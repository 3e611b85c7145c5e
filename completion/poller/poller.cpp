#include <troupe/completion/poller/poller.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace troupe {

namespace {

constexpr nanoseconds idle_park{std::chrono::seconds{1}};
/// The first sleep after work. A request whose end rings need not interrupt it, because it is no longer than the time
/// after which the poller looks for faults that nothing announces.
constexpr nanoseconds first_idle_park{track_limits{}.quiet};

/// Adds without a locked instruction; only the one thread that writes \p to may call it.
void add(std::atomic<nanoseconds::rep>& to, nanoseconds span) noexcept {
  to.store(to.load(std::memory_order_relaxed) + span.count(), std::memory_order_relaxed);
}

std::size_t load_of(const std::vector<std::shared_ptr<polled>>& all) {
  std::size_t load = 0;
  for (const auto& one : all) load += one->load();
  return load;
}

/// Returns whether all that is watched rings the bell at its end.
bool all_ring(const std::vector<std::shared_ptr<polled>>& all) {
  return std::ranges::all_of(all, [](const auto& one) { return one->load() == 0 || one->rings(); });
}

} // namespace

poller::poller(std::shared_ptr<const clock> time, wait_profile profile, std::function<void()> enter,
               nanoseconds counted)
  : time_{std::move(time)}, profile_{profile}, enter_{std::move(enter)}, running_{time_->now(), counted} {}

poller::~poller() {
  stop();
}

void poller::start() {
  if (thread_.joinable()) return;
  thread_ = worker{[this] { run(); }};
  is_started_.store(true);
}

void poller::stop() {
  {
    const std::lock_guard lock{mutex_}; // will_poll() promises a round only before the store
    stopping_.store(true);
  }
  notify();
  if (thread_.joinable()) thread_.join();
}

void poller::attach(std::shared_ptr<polled> watched) {
  const std::lock_guard lock{mutex_};
  auto longer = std::make_shared<polled_list>(*polled_);
  longer->push_back(std::move(watched));
  polled_ = std::move(longer); // destroys no object: the new list has all of the old one
  replaced_.fetch_add(1);
  notify();
}

void poller::detach(const polled& watched) {
  std::shared_ptr<const polled_list> gone; // may be the last owner of `watched`, whose end may come back here
  const std::lock_guard lock{mutex_};
  auto shorter = std::make_shared<polled_list>(*polled_);
  std::erase_if(*shorter, [&](const auto& one) { return one.get() == &watched; });
  gone = std::exchange(polled_, std::move(shorter));
  replaced_.fetch_add(1);
  notify(); // a parked thread still holds the list of its last round
}

void poller::let_go(polled& watched) {
  if (watched.load() == 0) return detach(watched);
  {
    const std::lock_guard lock{mutex_};
    if (std::ranges::find(*polled_, &watched, &std::shared_ptr<polled>::get) == polled_->end()) return;
    if (!has_ended_) {
      leaving_.push_back(&watched);
      some_leave_.store(true);
      notify();
      return;
    }
  }
  poll_last(watched);
}

void poller::poll_last(polled& watched) {
  const time_point now = time_->now();
  running_time running;
  {
    const std::lock_guard lock{mutex_}; // several threads may let go of objects
    running = running_.read(now);
  }
  static_cast<void>(watched.poll(now, running));
  watched.tidy();
  detach(watched);
}

bool poller::will_poll(const polled& watched) noexcept {
  {
    const std::lock_guard lock{mutex_};
    const bool is_attached = std::ranges::find(*polled_, &watched, &std::shared_ptr<polled>::get) != polled_->end();
    if (!is_started_.load() || stopping_.load() || !is_attached) return false;
    owes_round_.store(true);
  }
  notify();
  return true;
}

void poller::detach_leaving() {
  std::vector<const polled*> done;
  {
    const std::lock_guard lock{mutex_};
    std::erase_if(leaving_, [&](const polled* one) {
      const bool is_done = one->load() == 0;
      if (is_done) done.push_back(one);
      return is_done;
    });
    some_leave_.store(!leaving_.empty());
  }
  for (const polled* one : done) detach(*one);
}

bool poller::step() {
  running_.read(time_->now(), nanoseconds::max());
  return step(*snapshot());
}

bool poller::step(const polled_list& all) {
  const time_point now = time_->now();
  const running_time running = running_.read(now);
  bool answered = false;
  for (const auto& one : all) answered = one->poll(now, running) || answered;
  if (answered)
    for (const auto& one : all) one->tidy();
  if (some_leave_.load(std::memory_order_relaxed)) detach_leaving();
  return answered;
}

time_point poller::end_round(const polled_list& all) noexcept {
  // Without a call of the driver nothing in a round waits for a device, so a long round means that the thread did not
  // run. (docs/design/0101-running-clock.md)
  const time_point now = time_->now();
  const bool is_long = running_.since_reading(now) > running_.counted();
  const bool counts = is_long && std::ranges::any_of(all, [](const auto& one) { return one->called_driver(); });
  running_.read(now, counts ? nanoseconds::max() : running_.counted());
  return now;
}

std::shared_ptr<const poller::polled_list> poller::snapshot() const {
  const std::lock_guard lock{mutex_};
  return polled_;
}

void poller::run() {
  if (enter_) enter_();
  std::uint64_t known = replaced_.load();
  auto all = snapshot();
  time_point last_work = time_->now();
  running_.read(last_work, nanoseconds::max()); // it may have been started long after its construction
  time_point look_began = last_work;            // or slightly earlier
  std::size_t load = 0;
  while (!stopping_.load()) {
    if (const std::uint64_t now = replaced_.load(); now != known) {
      all = nullptr; // released before the next list is taken, so that no object is held longer than necessary
      known = now;
      all = snapshot();
      look_began = time_->now();
      running_.read(look_began, nanoseconds::max()); // releasing objects may have called the driver
    }
    if (owes_round_.load(std::memory_order_relaxed)) owes_round_.store(false);
    const std::uint64_t rings = bell_->rings_.load();
    if (step(*all)) {
      last_work = end_round(*all);
      add(busy_, last_work - look_began);
      look_began = last_work;
      continue;
    }
    look_began = end_round(*all);
    if (look_began - last_work < profile_.spin) {
      spin_pause();
      continue;
    }
    const std::size_t before = std::exchange(load, load_of(*all));
    const auto has_news = [&] {
      return stopping_.load() || owes_round_.load() || replaced_.load() != known || load_of(*all) != load ||
             bell_->rings_.load() != rings;
    };
    if (load > before) {
      last_work = look_began;
      continue;
    }
    // Most devices cannot wake a thread, so the poller only naps while something is in flight there.
    const bool is_first = look_began - last_work < profile_.spin + first_idle_park;
    const nanoseconds longest_idle = is_first ? first_idle_park : idle_park;
    const nanoseconds longest_park = load == 0 ? longest_idle : all_ring(*all) ? profile_.sleep : profile_.nap;
    sleeps_until_.store(later(look_began, longest_park), std::memory_order_relaxed);
    const bool is_woken = bell_->wake_.park(has_news, longest_park);
    const time_point woken = time_->now();
    add(parked_, woken - look_began);
    running_.read(woken, longest_park + running_.counted());
    look_began = woken;
    if (is_woken) last_work = woken;
  }
  finish();
}

void poller::finish() {
  // For what will_poll() has promised, and for what has finished or failed since the last round.
  static_cast<void>(step(*snapshot()));
  polled_list left;
  {
    const std::lock_guard lock{mutex_};
    has_ended_ = true;
    std::ranges::copy_if(*polled_, std::back_inserter(left), [this](const std::shared_ptr<polled>& one) {
      return std::ranges::find(leaving_, one.get()) != leaving_.end();
    });
    leaving_.clear();
  }
  for (const auto& one : left) poll_last(*one);
}

} // namespace troupe
