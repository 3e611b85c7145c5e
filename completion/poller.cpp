#include <troupe/completion/poller.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

constexpr nanoseconds idle_park{std::chrono::seconds{1}};

} // namespace

poller::poller(std::shared_ptr<const clock> time, wait_profile profile, std::function<void()> enter)
  : time_{std::move(time)}, profile_{profile}, enter_{std::move(enter)} {}

poller::~poller() {
  stop();
}

void poller::start() {
  if (!thread_.joinable()) thread_ = std::thread{[this] { run(); }};
}

void poller::stop() {
  stopping_.store(true, std::memory_order_release);
  wake_.notify();
  if (thread_.joinable()) thread_.join();
}

void poller::attach(std::shared_ptr<polled> watched) {
  const std::lock_guard lock{guard_};
  auto longer = std::make_shared<polled_list>(*polled_);
  longer->push_back(std::move(watched));
  polled_ = std::move(longer);
}

void poller::detach(const polled& watched) {
  const std::lock_guard lock{guard_};
  auto shorter = std::make_shared<polled_list>(*polled_);
  std::erase_if(*shorter, [&](const auto& one) { return one.get() == &watched; });
  polled_ = std::move(shorter);
}

bool poller::step() {
  bool answered = false;
  const auto held = snapshot(); // a temporary in the loop's head would not live through the loop
  for (const auto& one : *held) answered = one->poll(time_->now()) || answered;
  return answered;
}

std::shared_ptr<const poller::polled_list> poller::snapshot() const {
  const std::lock_guard lock{guard_};
  return polled_;
}

void poller::run() {
  if (enter_) enter_();
  time_point last_work = time_->now();
  while (!stopping_.load(std::memory_order_acquire)) {
    const auto seen = wake_.seen();
    if (step()) {
      last_work = time_->now();
      continue;
    }
    if (time_->now() - last_work < profile_.spin) {
      spin_pause();
      continue;
    }
    // Devices cannot wake a thread: while something is in flight the poller only naps.
    const bool loaded = std::ranges::any_of(*snapshot(), [](const auto& one) { return one->load() > 0; });
    wake_.park(seen, loaded ? profile_.nap : idle_park);
    if (wake_.seen() != seen) last_work = time_->now();
  }
}

} // namespace troupe
