#include <troupe/program/bench/host_copies_floor.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <latch>
#include <mutex>
#include <thread>
#include <utility>

namespace troupe::program {

namespace {

using steady = std::chrono::steady_clock;

} // namespace

host_copies_floor::host_copies_floor(std::vector<floor_memory> ranks)
  : ranks_{std::move(ranks)}, pageable_{std::ranges::any_of(ranks_, [](const floor_memory& one) {
      return one.host_send.kind() == memory_kind::pageable;
    })} {
  for (const floor_memory& one : ranks_) {
    const std::size_t length = one.host_send.size_bytes();
    lanes_.push_back({one.where.get(), stream{one.where}, one.device_send.data(), one.host_send.data(), length});
    lanes_.push_back({one.where.get(), stream{one.where}, one.host_recv.data(), one.device_recv.data(), length});
  }
}

nanoseconds host_copies_floor::run() {
  return pageable_ ? run_threaded() : run_enqueued();
}

nanoseconds host_copies_floor::run_enqueued() {
  const auto began = steady::now();
  for (const lane& one : lanes_) one.line.ref().copy(one.to, one.from, one.size_bytes);
  for (const lane& one : lanes_) one.line.ref().synchronize();
  return steady::now() - began;
}

nanoseconds host_copies_floor::run_threaded() {
  std::latch ready{static_cast<std::ptrdiff_t>(lanes_.size())};
  std::latch release{1};
  std::atomic<std::size_t> left{lanes_.size()};
  std::mutex guard;
  std::exception_ptr failure;
  steady::time_point began;
  steady::time_point ended;
  {
    std::vector<std::jthread> threads;
    for (const lane& one : lanes_)
      threads.emplace_back([&] {
        ready.count_down();
        release.wait();
        try {
          one.where->api().enter_thread(one.where->id());
          one.line.ref().copy(one.to, one.from, one.size_bytes);
          one.line.ref().synchronize();
        } catch (...) {
          const std::lock_guard lock{guard};
          failure = std::current_exception();
        }
        --left;
      });
    ready.wait();
    began = steady::now();
    release.count_down();
    while (left > 0) std::this_thread::yield();
    ended = steady::now();
  }
  if (failure) std::rethrow_exception(failure);
  return ended - began;
}

} // namespace troupe::program
