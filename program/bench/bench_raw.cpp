#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/program/bench/bench_raw.hpp>

#include <troupe/collectives/backend/solo_communicator.hpp>
#include <troupe/completion/sources/flag_source.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/runtime/thread_plan.hpp>

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <string>
#include <thread>
#include <utility>

namespace troupe::program {

namespace {

using steady = std::chrono::steady_clock;

} // namespace

/// Releases the threads and waits until all have finished.
class raw_ranks::pacing {
public:
  std::atomic<std::uint64_t> turn{0};
  std::atomic<std::size_t> finished{0};
  std::atomic<bool> ending{false};
  std::atomic<bool> resting{false};
  const raw_ranks::task* work = nullptr; ///< Published by turn.
};

class raw_ranks::worker {
public:
  /// The times of one thread's operations.
  struct times {
    std::vector<time_point> called{}, done{}; ///< By operation, for operations that were awaited one by one.
    time_point first{}, last{};               ///< The first call, and the last completion seen.
  };

  worker(pacing& pace, std::shared_ptr<communicator> peers, const std::shared_ptr<slot_table>& slots, std::size_t index,
         cpu_set near)
    : pace_{pace},
      peers_{std::move(peers)},
      stream_{peers_->where()},
      flag_{slots},
      index_{index},
      near_{std::move(near)},
      thread_{[this] { run(); }} {}

  /// Runs this thread's part of raw_ranks::time(). Other threads do not wait for it.
  void once(const raw_ranks::round& work) {
    work(index_, *peers_, stream_);
    flag_.arm(stream_, ++sequence_);
    await(sequence_);
    seen_.last = steady::now();
  }

  /// Runs this thread's part of raw_ranks::run().
  void repeat(const operation& what, std::size_t total, std::size_t depth) {
    seen_.called.clear();
    seen_.done.clear();
    if (depth <= 1) {
      seen_.called.reserve(total);
      seen_.done.reserve(total);
      for (std::size_t i = 0; i < total; ++i) {
        seen_.called.push_back(steady::now());
        peers_->launch(what, stream_);
        flag_.arm(stream_, ++sequence_);
        await(sequence_);
        seen_.done.push_back(steady::now());
      }
      seen_.first = seen_.called.front();
      seen_.last = seen_.done.back();
      return;
    }
    seen_.first = steady::now();
    keep_full(what, total, depth);
    seen_.last = steady::now();
  }

  [[nodiscard]] const times& seen() const noexcept { return seen_; }
  [[nodiscard]] std::size_t index() const noexcept { return index_; }

  /// Must be called after `ending` was released.
  void join() { thread_.join(); }
  [[nodiscard]] const std::exception_ptr& failure() const noexcept { return failure_; }

private:
  void run() {
    try {
      begin_thread("bench/raw" + std::to_string(index_), near_);
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
      try {
        (*pace_.work)(*this);
      } catch (...) {
        failure_ = std::current_exception();
      }
      pace_.finished.fetch_add(1, std::memory_order_release);
      pace_.finished.notify_all();
    }
    flag_.drained();
    peers_->destroy();
  }

  /// Keeps the window full. It is marked and refilled by quarters, because a mark for each operation would delay the
  /// stream.
  void keep_full(const operation& what, std::size_t total, std::size_t depth) {
    const std::size_t quarter = std::max<std::size_t>(1, depth / 4);
    // The number of operations launched until each mark, and the mark.
    std::deque<std::pair<std::size_t, std::uint64_t>> marked;
    std::size_t done = 0;
    for (std::size_t launched = 0; launched < total;) {
      const std::size_t next = std::min(launched + quarter, total);
      while (next - done > depth) {
        await(marked.front().second);
        done = marked.front().first;
        marked.pop_front();
      }
      for (; launched < next; ++launched) peers_->launch(what, stream_);
      if (launched + depth >= total + quarter && launched < total) continue; // Only the end waits for this quarter.
      flag_.arm(stream_, ++sequence_);
      marked.emplace_back(launched, sequence_);
    }
    await(sequence_);
  }

  void await(std::uint64_t sequence) {
    while (!flag_.reached(sequence)) spin_pause();
  }

  pacing& pace_;
  std::shared_ptr<communicator> peers_;
  stream stream_;
  flag_source flag_;
  std::size_t index_;
  cpu_set near_;
  std::uint64_t sequence_ = 0;
  times seen_{};
  std::exception_ptr failure_;
  std::thread thread_;
};

namespace {

/// Places the threads as spinning launchers are placed, so that raw has the same CPUs as troupe.
thread_plan plan_raw_threads(runtime& rt, const world& where) {
  if (rt.settings().placement == thread_placement::anywhere) return {};
  std::vector<device_id> in_use;
  for (const rank self : where.local_ranks()) in_use.push_back(where.device_of(self)->id());
  constexpr bool spinning = true;
  return plan_threads(rt.api(), in_use, spinning);
}

/// Returns one id for the communicators of all processes of \p where, made by rank 0.
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
    pacing_{std::make_unique<pacing>()},
    is_yardstick_{rt.collectives().name() != "mock"} {
  const int size = where.size();
  const bool is_whole = where.local_ranks().size() == static_cast<std::size_t>(size);
  const unique_id id = size == 1 ? unique_id{} : is_whole ? rt.make_unique_id() : shared_id(rt, where);
  const thread_plan threads = plan_raw_threads(rt, where);
  for (const rank self : where.local_ranks()) {
    const auto& on = where.device_of(self);
    std::shared_ptr<communicator> peers =
        size > 1 ? rt.collectives().create(id, self, size, on) : std::make_shared<solo_communicator>(on);
    workers_.push_back(
        std::make_unique<worker>(*pacing_, std::move(peers), slots_, workers_.size(), threads.launcher_of(on->id())));
  }
  await_all();
  rethrow_failure();
}

raw_ranks::~raw_ranks() {
  pacing_->ending.store(true, std::memory_order_relaxed);
  pacing_->turn.fetch_add(1, std::memory_order_release);
  pacing_->turn.notify_all();
  for (const auto& one : workers_) one->join();
}

series raw_ranks::run(const std::vector<operation>& parts, std::size_t total, std::size_t depth) {
  series result;
  if (total == 0) return result;
  wake();
  const task repeat = [&](worker& by) { by.repeat(parts[by.index()], total, depth); };
  release(repeat);
  for (std::size_t seen = 0; seen < workers_.size(); seen = pacing_->finished.load(std::memory_order_acquire))
    pacing_->finished.wait(seen, std::memory_order_acquire); // Parked, so that no other thread spins meanwhile.
  rethrow_failure();
  const auto first_of = [&](auto member) {
    return member(*std::ranges::min_element(workers_, {}, [&](const auto& one) { return member(one); }));
  };
  const auto last_of = [&](auto member) {
    return member(*std::ranges::max_element(workers_, {}, [&](const auto& one) { return member(one); }));
  };
  result.all = last_of([](const auto& one) { return one->seen().last; }) -
               first_of([](const auto& one) { return one->seen().first; });
  for (std::size_t i = 0; depth <= 1 && i < total; ++i)
    result.each.push_back(last_of([i](const auto& one) { return one->seen().done[i]; }) -
                          first_of([i](const auto& one) { return one->seen().called[i]; }));
  return result;
}

void raw_ranks::rest() noexcept {
  resting_ = true;
  pacing_->resting.store(true, std::memory_order_relaxed);
}

void raw_ranks::release(const task& work) {
  pacing_->finished.store(0, std::memory_order_relaxed);
  pacing_->work = &work;
  pacing_->turn.fetch_add(1, std::memory_order_release);
}

void raw_ranks::await_all() const noexcept {
  while (pacing_->finished.load(std::memory_order_acquire) < workers_.size()) spin_pause();
}

void raw_ranks::wake() {
  if (!std::exchange(resting_, false)) return;
  pacing_->resting.store(false, std::memory_order_relaxed);
  const task nothing = [](worker&) {};
  release(nothing);
  pacing_->turn.notify_all();
  await_all();
}

void raw_ranks::rethrow_failure() const {
  for (const auto& one : workers_)
    if (one->failure()) std::rethrow_exception(one->failure());
}

nanoseconds raw_ranks::time(const round& work) {
  wake();
  const task once = [&work](worker& by) { by.once(work); };
  const time_point began = steady::now();
  release(once);
  await_all();
  rethrow_failure();
  time_point last = began;
  for (const auto& one : workers_) last = std::max(last, one->seen().last);
  return last - began;
}

} // namespace troupe::program
