/// Requests that are answered in two steps: first when they are in the GPU's queue, with an event behind them, then
/// when they are done.
#pragma once

#include <troupe/completion/reply/reply_promise.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace troupe {

/// The right to receive a request's outcome. The outcome is delivered once (ONE-1), to the first caller of redeem().
///
/// Lifetime: all copies represent the same claim. An outcome that was not redeemed is destroyed with the last copy.
/// Threads: all functions may be called from any thread.
class outcome_claim {
public:
  class record;

  outcome_claim() noexcept = default;
  explicit outcome_claim(std::shared_ptr<record> shared) noexcept : record_{std::move(shared)} {}

  /// Delivers the outcome to \p to as soon as it is known, possibly immediately. Errors, delivered to \p to:
  /// invalid_argument (the outcome has already been redeemed, or the claim is empty).
  void redeem(reply_promise to) const;

private:
  std::shared_ptr<record> record_;
};

/// The first of two answers: the request has been enqueued on the device of each of its ranks, ordered with the other
/// requests. An event promises order, never success: work behind it runs after the operation, whether that succeeded or
/// not. Rely on the results only after the outcome.
struct enqueued {
  troupe::ticket ticket{};
  troupe::epoch epoch{};
  /// One entry for a request to one rank; for a request to the world one entry per rank, in ascending order.
  std::vector<launch_mark> ranks{};
  outcome_claim outcome{};
};

/// Returns a promise whose first step goes to \p first as soon as \p part_count ranks have enqueued their parts. The
/// outcome is delivered to the first caller that redeems the claim. If the request is refused or fails before the first
/// step, \p first gets the error.
[[nodiscard]] reply_promise make_overlapped_promise(std::shared_ptr<value_promise<enqueued>> first,
                                                    std::size_t part_count);
/// The same, but the outcome goes to \p second.
[[nodiscard]] reply_promise make_overlapped_promise(std::shared_ptr<value_promise<enqueued>> first,
                                                    std::size_t part_count, reply_promise second);

} // namespace troupe
