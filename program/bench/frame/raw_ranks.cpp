#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/program/bench/frame/raw_ranks.hpp>

#include <troupe/collectives/backend/solo_communicator.hpp>
#include <troupe/completion/sources/completion_source.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/runtime/placement/thread_plan.hpp>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

namespace troupe::program {

namespace {

using steady = std::chrono::steady_clock;

} // namespace

class raw_ranks::worker {
public:
  /// The times of one thread's operations.
  struct times {
    std::vector<time_point> called{}, done{}; ///< Indexed by operation; empty unless operations are awaited one by one.
    time_point first{}, last{};               ///< The times of the first call and of the last completion seen.
  };

  worker(std::shared_ptr<communicator> peers, const std::shared_ptr<slot_table>& slots, std::size_t index, cpu_set near)
    : peers_{std::move(peers)}, stream_{peers_->where()}, flag_{slots}, index_{index}, near_{std::move(near)} {}

  /// This rank's thread calls it first.
  void begin() {
    begin_thread("bench/raw" + std::to_string(index_), near_);
    peers_->where()->api().enter_thread(peers_->where()->id());
    peers_->init();
  }
  /// This rank's thread calls it last.
  void end() {
    flag_.drained();
    peers_->destroy();
  }

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

private:
  /// Keeps \p depth operations in flight. Marks completion and launches in batches of a quarter of \p depth, because a
  /// mark for each operation would delay the stream.
  void keep_full(const operation& what, std::size_t total, std::size_t depth) {
    const std::size_t quarter = std::max<std::size_t>(1, depth / 4);
    // For each mark: the number of operations launched before it, and its sequence number.
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
      if (launched + depth >= total + quarter && launched < total) continue; // No refill waits for this quarter.
      flag_.arm(stream_, ++sequence_);
      marked.emplace_back(launched, sequence_);
    }
    await(sequence_);
  }

  void await(std::uint64_t sequence) {
    while (!flag_.reached(sequence)) spin_pause();
  }

  std::shared_ptr<communicator> peers_;
  stream stream_;
  flag_source flag_;
  std::size_t index_;
  cpu_set near_;
  std::uint64_t sequence_ = 0;
  times seen_{};
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

/// Returns the id that rank 0 creates for the communicators of all processes of \p where.
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
        std::make_unique<worker>(std::move(peers), slots_, workers_.size(), threads.launcher_of(on->id())));
  }
  team_ = std::make_unique<thread_team>(
      workers_.size(), [this](std::size_t i) { workers_[i]->begin(); }, [this](std::size_t i) { workers_[i]->end(); });
}

raw_ranks::~raw_ranks() = default;

series raw_ranks::run(const std::vector<operation>& parts, std::size_t total, std::size_t depth) {
  series result;
  if (total == 0) return result;
  team_->wake();
  const thread_team::task repeat = [&](std::size_t i) { workers_[i]->repeat(parts[i], total, depth); };
  team_->release(repeat);
  team_->await_parked();
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

nanoseconds raw_ranks::time(const round& work) {
  team_->wake();
  const thread_team::task once = [&](std::size_t i) { workers_[i]->once(work); };
  const time_point began = steady::now();
  team_->release(once);
  team_->await();
  time_point last = began;
  for (const auto& one : workers_) last = std::max(last, one->seen().last);
  return last - began;
}

} // namespace troupe::program
