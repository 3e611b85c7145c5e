/// One order of launches over all worlds that share GPUs: what keeps two of them from waiting for each other.
#pragma once

#include <mutex>
#include <utility>

namespace troupe {

/// Two worlds on the same GPUs must reach every one of them in the same order: if one GPU is given A before B and the
/// other B before A, each waits for what the other has not begun (ORD-1). Whoever submits to several pipelines does it
/// in a turn of its own, so that launchers, which work in the order of submission, agree.
///
/// Threads: safe from any; a turn only queues, so it is short.
class launch_order {
public:
  /// Runs \p submit while nobody else has a turn.
  template <class Submit>
  void take_turn(Submit&& submit) {
    const std::lock_guard lock{guard_};
    std::forward<Submit>(submit)();
  }

private:
  std::mutex guard_;
};

} // namespace troupe
