#include "bench_raw.hpp"

#include <troupe/collectives/solo_communicator.hpp>
#include <troupe/completion/flag_source.hpp>
#include <troupe/device/thread_binding.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <string>
#include <thread>
#include <utility>

namespace troupe::program {

namespace {

using steady = std::chrono::steady_clock;

} // namespace

/// What releases the threads and brings them together again.
class raw_ranks::pacing {
public:
  std::atomic<std::uint64_t> turn{0};
  std::atomic<std::size_t> finished{0};
  std::atomic<bool> ending{false};
  std::atomic<bool> resting{false};
  const raw_ranks::round* work = nullptr; ///< Published by turn.
};

class raw_ranks::worker {
public:
  worker(pacing& pace, std::shared_ptr<communicator> peers, const std::shared_ptr<slot_table>& slots, std::size_t index)
    : pace_{pace}, peers_{std::move(peers)}, stream_{peers_->where()}, flag_{slots}, index_{index}, thread_{[this] {
        run();
      }} {}

  /// After `ending` was released.
  void join() { thread_.join(); }
  [[nodiscard]] time_point done_at() const noexcept { return done_at_; }
  [[nodiscard]] const std::exception_ptr& failure() const noexcept { return failure_; }

private:
  void run() {
    try {
      name_this_thread("bench/raw" + std::to_string(index_));
      peers_->where()->api().enter_thread(peers_->where()->id());
      peers_->init();
    } catch (...) {
      failure_ = std::current_exception();
    }
    pace_.finished.fetch_add(1, std::memory_order_release);
    for (std::uint64_t seen = 0;;) {
      while (pace_.turn.load(std::memory_order_acquire) == seen)
        if (pace_.resting.load(std::memory_order_relaxed))
          pace_.turn.wait(seen, std::memory_order_acquire);
        else
          spin_pause();
      ++seen;
      if (pace_.ending.load(std::memory_order_relaxed)) break;
      work();
      pace_.finished.fetch_add(1, std::memory_order_release);
    }
    flag_.drained();
    peers_->destroy();
  }

  void work() {
    try {
      (*pace_.work)(index_, *peers_, stream_);
      flag_.arm(stream_, ++sequence_);
      while (!flag_.reached(sequence_)) spin_pause();
    } catch (...) {
      failure_ = std::current_exception();
    }
    done_at_ = steady::now();
  }

  pacing& pace_;
  std::shared_ptr<communicator> peers_;
  stream stream_;
  flag_source flag_;
  std::size_t index_;
  std::uint64_t sequence_ = 0;
  time_point done_at_{};
  std::exception_ptr failure_;
  std::thread thread_;
};

namespace {

/// One name for communicators of all processes of \p where: rank 0's.
unique_id shared_id(runtime& rt, world where) {
  const rank self = where.local_ranks().front();
  unique_id id;
  if (self == rank{0}) id = rt.make_unique_id();
  const std::size_t size = id.bytes.size();
  const buffer host = where.allocate_pinned(size);
  const buffer memory = where.allocate(self, size);
  std::ranges::copy(id.bytes, host.data());
  where.copy(self, host, memory).get();
  where.ask(self, broadcast{.send = memory, .recv = memory, .count = size, .type = dtype::u8}).get();
  where.copy(self, memory, host).get();
  std::copy_n(host.data(), size, id.bytes.begin());
  return id;
}

} // namespace

raw_ranks::raw_ranks(runtime& rt, const world& where)
  : slots_{std::make_shared<slot_table>(where.device_of(where.local_ranks().front()), where.local_ranks().size())},
    pacing_{std::make_unique<pacing>()} {
  const int size = where.size();
  const bool is_whole = where.local_ranks().size() == static_cast<std::size_t>(size);
  const unique_id id = size == 1 ? unique_id{} : is_whole ? rt.make_unique_id() : shared_id(rt, where);
  for (const rank self : where.local_ranks()) {
    const auto& on = where.device_of(self);
    std::shared_ptr<communicator> peers =
        size > 1 ? rt.collectives().create(id, self, size, on) : std::make_shared<solo_communicator>(on);
    workers_.push_back(std::make_unique<worker>(*pacing_, std::move(peers), slots_, workers_.size()));
  }
  while (pacing_->finished.load(std::memory_order_acquire) < workers_.size()) spin_pause();
  for (const auto& one : workers_)
    if (one->failure()) std::rethrow_exception(one->failure());
}

raw_ranks::~raw_ranks() {
  pacing_->ending.store(true, std::memory_order_relaxed);
  pacing_->turn.fetch_add(1, std::memory_order_release);
  pacing_->turn.notify_all();
  for (const auto& one : workers_) one->join();
}

series raw_ranks::run(const std::vector<operation>& parts, std::size_t total, std::size_t depth) {
  series result;
  for (std::size_t done = 0; done < total; done += depth) {
    const std::size_t count = std::min(depth, total - done);
    const nanoseconds took = time([&](std::size_t index, communicator& peers, stream_ref stream) {
      for (std::size_t i = 0; i < count; ++i) peers.launch(parts[index], stream);
    });
    result.all += took;
    result.each.push_back(took);
  }
  return result;
}

void raw_ranks::rest() noexcept {
  resting_ = true;
  pacing_->resting.store(true, std::memory_order_relaxed);
}

void raw_ranks::release(const round& work) {
  pacing_->finished.store(0, std::memory_order_relaxed);
  pacing_->work = &work;
  pacing_->turn.fetch_add(1, std::memory_order_release);
}

nanoseconds raw_ranks::time(const round& work) {
  const auto await_all = [this] {
    while (pacing_->finished.load(std::memory_order_acquire) < workers_.size()) spin_pause();
  };
  if (std::exchange(resting_, false)) {
    const round nothing = [](std::size_t, communicator&, stream_ref) {};
    pacing_->resting.store(false, std::memory_order_relaxed);
    release(nothing);
    pacing_->turn.notify_all();
    await_all();
  }
  const time_point began = steady::now();
  release(work);
  await_all();
  time_point last = began;
  for (const auto& one : workers_) {
    if (one->failure()) std::rethrow_exception(one->failure());
    last = std::max(last, one->done_at());
  }
  return last - began;
}

} // namespace troupe::program
