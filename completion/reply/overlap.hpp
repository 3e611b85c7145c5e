/// Requests that are answered in two steps: when they are in the GPU's queue, with an event behind them, and when they
/// are done.
#pragma once

#include <troupe/completion/poller/launch_listener.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/completion/reply/value_promise.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace troupe {

/// The right to a request's outcome. ONE-1 counts the outcome: it is given once, to the first who asks.
///
/// Lifetime: copies are one claim; an outcome that nobody has asked for goes with the last. Threads: safe from any.
class outcome_claim {
public:
  class record;

  outcome_claim() noexcept = default;
  explicit outcome_claim(std::shared_ptr<record> shared) noexcept : record_{std::move(shared)} {}

  /// Delivers the outcome to \p to when it is there, which may be at once. Errors, to \p to: invalid_argument (somebody
  /// has asked before, or there is no claim).
  void redeem(reply_promise to) const;

private:
  std::shared_ptr<record> record_;
};

/// The first of two answers: the request has been enqueued on the device of each of its ranks, in the order of the
/// others. An event promises order, never success: work behind it runs after the operation, whatever became of that;
/// results are used for good only after the outcome.
struct enqueued {
  troupe::ticket ticket{};
  troupe::epoch epoch{};
  /// Of a request to one rank there is one; of a request to the world, one for each rank, ascending.
  std::vector<launch_mark> ranks{};
  outcome_claim outcome{};
};

/// An answer whose first step goes to \p first as soon as \p part_count ranks have enqueued their parts. The outcome
/// waits for whoever redeems the claim. Where the request is refused or fails before, \p first gets the error.
[[nodiscard]] reply_promise make_overlapped_promise(std::shared_ptr<value_promise<enqueued>> first,
                                                    std::size_t part_count);
/// The same whose outcome goes to \p second.
[[nodiscard]] reply_promise make_overlapped_promise(std::shared_ptr<value_promise<enqueued>> first,
                                                    std::size_t part_count, reply_promise second);

} // namespace troupe
