/// What one rank's collective actor decides, without CAF: whether a request is admitted, and how it is refused.
#pragma once

#include <troupe/actors/messages.hpp>
#include <troupe/collectives/rank_pipeline.hpp>
#include <troupe/collectives/request.hpp>
#include <troupe/collectives/sequencing/arbiter.hpp>
#include <troupe/completion/answer.hpp>

#include <memory>

namespace troupe {

/// Owns the rank's pipeline, and with it stream and communicator, for as long as the epoch lasts.
/// Threads: the actor's.
class collective_state {
public:
  explicit collective_state(rank self);

  /// \p order is none where the callers promise theirs.
  void adopt(std::shared_ptr<rank_pipeline> pipeline, std::shared_ptr<ordered_world> order,
             nanoseconds default_deadline);
  /// Everything from now on is rejected with \p reason.
  void close(error reason);

  /// Sends \p asked on its way, or delivers to \p reply why not (ONE-1, ORD-2, EPO-1). Never blocks (BLK-1).
  void accept(rank_request asked, answer reply, std::uint64_t client);
  void cancel(const cancel_request& wish);
  /// \p client asks no more.
  void forget(std::uint64_t client, const error& why);

  /// The actor ends: work in flight loses its owner, so its outcome is unknown.
  void end(const std::string& reason);

private:
  [[nodiscard]] error objection_to(const rank_request& asked) const;

  rank self_;
  std::shared_ptr<rank_pipeline> pipeline_;
  std::shared_ptr<ordered_world> order_;
  nanoseconds default_deadline_{0};
  error closed_;
  ticket next_{1};
};

} // namespace troupe
