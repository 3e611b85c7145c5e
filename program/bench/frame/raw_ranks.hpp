/// Runs the reference of the benches, called raw: the same collective without actors, launchers or poller. One spinning
/// thread per GPU, on the CPUs of that GPU's launcher, calls NCCL and polls the same kind of flag in pinned memory as
/// troupe.
#pragma once

#include <troupe/completion/sources/completion_source.hpp>
#include <troupe/program/bench/frame/asker.hpp>
#include <troupe/program/bench/frame/thread_team.hpp>

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/runtime/runtime.hpp>

#include <functional>
#include <memory>
#include <vector>

namespace troupe::program {

/// Separate communicators over the same GPUs as \p where. They must not be used while those of troupe are busy.
class raw_ranks {
public:
  raw_ranks(runtime& rt, const world& where);
  raw_ranks(const raw_ranks&) = delete;
  raw_ranks& operator=(const raw_ranks&) = delete;
  ~raw_ranks();

  /// Runs \p total operations with up to \p depth in flight. Each thread launches its next operations as soon as it has
  /// seen the oldest one finish, and does not wait for other threads. With depth 1, `each` is the time from the first
  /// rank's call to the completion seen by the last rank; with a larger depth it is empty. `all` is the time from the
  /// first call of any rank to the last completion seen.
  [[nodiscard]] series run(const std::vector<operation>& parts, std::size_t total, std::size_t depth);

  /// The work that the thread of local rank \p index enqueues when it is released.
  using round = std::function<void(std::size_t index, communicator& peers, stream_ref stream)>;
  /// Releases all threads once. Returns the time from the release until the last rank has seen its work finished.
  [[nodiscard]] nanoseconds time(const round& work);
  /// Returns whether the ranks run on GPUs. Ratios to raw on the mock are not printed, because they say nothing about
  /// NCCL.
  [[nodiscard]] bool is_yardstick() const noexcept { return is_yardstick_; }
  /// Lets the threads park until the next run() or time(), which wakes them before it starts the measurement. Parked
  /// threads use no core while something else is measured.
  void rest() noexcept { team_->rest(); }

private:
  class worker;

  std::shared_ptr<slot_table> slots_;
  std::vector<std::unique_ptr<worker>> workers_; ///< Indexed by local rank.
  bool is_yardstick_;
  std::unique_ptr<thread_team> team_; ///< Destroyed first.
};

} // namespace troupe::program
