#include <troupe/program/bench/frame/thread_team.hpp>

#include <troupe/completion/poller/wake_signal.hpp>

#include <utility>

namespace troupe::program {

thread_team::thread_team(std::size_t size, task begin, task end)
  : begin_{std::move(begin)}, end_{std::move(end)}, failures_(size) {
  threads_.reserve(size);
  try {
    for (std::size_t i = 0; i < size; ++i) threads_.emplace_back([this, i] { live(i); });
    await();
  } catch (...) {
    stop();
    throw;
  }
}

thread_team::~thread_team() {
  stop();
}

void thread_team::stop() {
  ending_.store(true, std::memory_order_relaxed);
  turn_.fetch_add(1, std::memory_order_release);
  turn_.notify_all();
  for (std::thread& one : threads_) one.join();
}

void thread_team::live(std::size_t member) {
  const auto guarded = [&](const task& work) {
    try {
      work(member);
    } catch (...) {
      failures_[member] = std::current_exception();
    }
    finished_.fetch_add(1, std::memory_order_release);
    finished_.notify_all();
  };
  guarded(begin_);
  for (std::uint64_t seen = 0;; ++seen) {
    while (turn_.load(std::memory_order_acquire) == seen)
      if (resting_.load(std::memory_order_relaxed))
        turn_.wait(seen, std::memory_order_acquire);
      else
        spin_pause();
    if (ending_.load(std::memory_order_relaxed)) break;
    guarded(*work_);
  }
  if (end_) end_(member);
}

void thread_team::release(const task& work) {
  finished_.store(0, std::memory_order_relaxed);
  work_ = &work;
  turn_.fetch_add(1, std::memory_order_release);
  if (resting_.load(std::memory_order_relaxed)) turn_.notify_all();
}

void thread_team::await() const {
  while (!finished()) spin_pause();
  rethrow_failure();
}

void thread_team::await_parked() const {
  for (std::size_t seen = 0; seen < size(); seen = finished_.load(std::memory_order_acquire))
    finished_.wait(seen, std::memory_order_acquire);
  rethrow_failure();
}

void thread_team::wake() {
  if (!resting_.exchange(false, std::memory_order_relaxed)) return;
  const task nothing = [](std::size_t) {};
  release(nothing);
  turn_.notify_all();
  while (!finished()) spin_pause();
}

void thread_team::rethrow_failure() const {
  for (const std::exception_ptr& one : failures_)
    if (one) std::rethrow_exception(one);
}

} // namespace troupe::program
