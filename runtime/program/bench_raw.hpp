/// The yardstick: the same collective without actors, launchers or poller. One spinning thread per GPU, all released
/// by one atomic, timed from the release to the last rank seen done; the wait is the same flag in pinned memory.
#pragma once

#include "bench_asker.hpp"

#include <troupe/collectives/communicator.hpp>
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

  /// Runs \p total operations; each time \p depth are launched back to back and then awaited.
  [[nodiscard]] series run(const std::vector<operation>& parts, std::size_t total, std::size_t depth);

  /// What the thread of local rank \p index enqueues when it is released.
  using round = std::function<void(std::size_t index, communicator& peers, stream_ref stream)>;
  /// Releases all threads once: the time until the last rank has seen its work done.
  [[nodiscard]] nanoseconds time(const round& work);
  /// Lets the threads park until the next run() or time(), which wakes them before it begins: while something else is
  /// measured they take no core.
  void rest() noexcept;

private:
  void release(const round& work);

  class pacing;
  class worker;

  std::shared_ptr<slot_table> slots_;
  std::unique_ptr<pacing> pacing_;
  std::vector<std::unique_ptr<worker>> workers_;
  bool resting_ = false;
};

} // namespace troupe::program
