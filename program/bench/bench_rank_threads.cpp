#include <troupe/program/bench/bench_asker.hpp>

#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/runtime/rank_lane.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>
#include <string>
#include <thread>
#include <utility>

namespace troupe::program {

namespace {

using steady = std::chrono::steady_clock;

/// Releases the threads and waits until all have finished.
struct pace {
  std::atomic<std::uint64_t> turn{0}; ///< Publishes the members below.
  std::atomic<std::size_t> finished{0};
  bool ending = false;
  const std::vector<operation>* parts = nullptr;
  std::size_t count = 0;
};

/// A thread that sends the requests of one rank.
class rank_thread {
public:
  rank_thread(pace& all, world where, rank whom, std::size_t index, lane in)
    : pace_{all}, index_{index}, lane_{std::move(where), whom, in}, thread_{[this] { run(); }} {}
  rank_thread(const rank_thread&) = delete;
  rank_thread& operator=(const rank_thread&) = delete;
  /// Must be called after `ending` was released.
  ~rank_thread() { thread_.join(); }

  [[nodiscard]] const std::vector<request_times>& times() const noexcept { return times_; }
  [[nodiscard]] const std::exception_ptr& failure() const noexcept { return failure_; }

private:
  void run() {
    name_this_thread("bench/rank" + std::to_string(index_));
    for (std::uint64_t seen = 0;; ++seen) {
      while (pace_.turn.load(std::memory_order_acquire) == seen) spin_pause();
      if (pace_.ending) return;
      try {
        ask();
      } catch (...) {
        failure_ = std::current_exception();
      }
      pace_.finished.fetch_add(1, std::memory_order_release);
    }
  }

  void ask() {
    times_.clear();
    replies_.clear();
    for (std::size_t i = 0; i < pace_.count; ++i) {
      times_.push_back({.asked = steady::now(), .replied = {}});
      replies_.push_back(lane_.ask((*pace_.parts)[index_]));
    }
    for (std::size_t i = 0; i < replies_.size(); ++i) {
      while (replies_[i].wait_for(nanoseconds{0}) != std::future_status::ready) spin_pause();
      times_[i].replied = steady::now();
    }
    for (auto& one : replies_) static_cast<void>(one.get());
  }

  pace& pace_;
  std::size_t index_;
  rank_lane lane_;
  std::vector<request_times> times_;
  std::vector<std::future<completion>> replies_;
  std::exception_ptr failure_;
  std::thread thread_; // Last, because it uses the other members.
};

class rank_thread_asker final : public asker {
public:
  rank_thread_asker(const world& where, lane in) : world_{where}, lane_{in} {}

  [[nodiscard]] std::string_view name() const noexcept override { return "rank threads"; }

  [[nodiscard]] series ask(const std::vector<operation>& parts, std::size_t total, std::size_t depth) override {
    // The threads live only during a series. Otherwise each would take a core from other measurements.
    pace all;
    std::vector<std::unique_ptr<rank_thread>> threads;
    for (const rank whom : world_.local_ranks())
      threads.push_back(std::make_unique<rank_thread>(all, world_, whom, threads.size(), lane_));
    const auto end = [&] {
      all.ending = true;
      all.turn.fetch_add(1, std::memory_order_release);
    };
    series result;
    const time_point began = steady::now();
    for (std::size_t done = 0; done < total; done += depth) {
      all.parts = &parts;
      all.count = std::min(depth, total - done);
      all.finished.store(0, std::memory_order_relaxed);
      all.turn.fetch_add(1, std::memory_order_release);
      while (all.finished.load(std::memory_order_acquire) < threads.size()) spin_pause();
      for (const auto& one : threads)
        if (const auto why = one->failure()) {
          end();
          std::rethrow_exception(why);
        }
      std::vector<std::vector<request_times>> times;
      for (const auto& one : threads) {
        times.push_back(one->times());
        for (const request_times& each : one->times()) result.each.push_back(each.replied - each.asked);
      }
      result.spans.push_back(span_of(times));
    }
    result.all = steady::now() - began;
    end();
    return result;
  }

private:
  world world_;
  lane lane_;
};

} // namespace

std::unique_ptr<asker> make_rank_thread_asker(world where, lane in) {
  return std::make_unique<rank_thread_asker>(where, in);
}

} // namespace troupe::program
