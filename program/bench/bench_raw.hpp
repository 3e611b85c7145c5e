/// The yardstick: the same collective without actors, launchers or poller. One spinning thread per GPU, on the CPUs
/// that its launcher has, calls NCCL and looks at the same flag in pinned memory as troupe does.
#pragma once

#include <troupe/program/bench/bench_asker.hpp>

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/runtime/runtime.hpp>

#include <functional>
#include <memory>
#include <vector>

namespace troupe::program {

/// Communicators of its own over the same GPUs as \p where. Not to be used while troupe's are busy.
class raw_ranks {
public:
  raw_ranks(runtime& rt, const world& where);
  raw_ranks(const raw_ranks&) = delete;
  raw_ranks& operator=(const raw_ranks&) = delete;
  ~raw_ranks();

  /// Runs \p total operations with up to \p depth in flight: each thread launches the next ones as soon as it has seen
  /// the oldest done, and waits for no other thread. One at a time (depth 1), `each` is from the first rank's call to
  /// the last rank's completion seen; with more it is empty. `all` is from the first call of any rank to the last seen
  /// done.
  [[nodiscard]] series run(const std::vector<operation>& parts, std::size_t total, std::size_t depth);

  /// What the thread of local rank \p index enqueues when it is released.
  using round = std::function<void(std::size_t index, communicator& peers, stream_ref stream)>;
  /// Releases all threads once: the time from the release to the last rank that has seen its work done.
  [[nodiscard]] nanoseconds time(const round& work);
  /// Whether it is of GPUs. Ratios to the mock's raw are not printed: they say nothing about NCCL.
  [[nodiscard]] bool is_yardstick() const noexcept { return is_yardstick_; }
  /// Lets the threads park until the next run() or time(), which wakes them before it begins: while something else is
  /// measured they take no core.
  void rest() noexcept;

private:
  class pacing;
  class worker;
  using task = std::function<void(worker& by)>;

  void wake();
  void release(const task& work);
  void await_all() const noexcept;
  void rethrow_failure() const;

  std::shared_ptr<slot_table> slots_;
  std::unique_ptr<pacing> pacing_;
  std::vector<std::unique_ptr<worker>> workers_;
  bool is_yardstick_;
  bool resting_ = false;
};

} // namespace troupe::program
