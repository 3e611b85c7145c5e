/// What one rank's collective actor decides, without CAF: whether a request is admitted, and how it is refused.
#pragma once

#include <troupe/collectives/rank_pipeline.hpp>
#include <troupe/collectives/request.hpp>
#include <troupe/completion/answer.hpp>

#include <memory>

namespace troupe {

/// Owns the rank's pipeline, and with it stream and communicator, for as long as the epoch lasts.
/// Threads: the actor's.
class collective_state {
public:
  explicit collective_state(rank self);

  void adopt(std::shared_ptr<rank_pipeline> pipeline, nanoseconds default_deadline);
  /// Everything from now on is rejected with \p reason.
  void close(error reason);

  /// Submits \p asked, or delivers to \p reply why not (ONE-1, ORD-2, EPO-1). Never blocks (BLK-1).
  void accept(rank_request asked, answer reply);

  /// The actor ends: work in flight loses its owner, so its outcome is unknown.
  void end(const std::string& reason);

private:
  [[nodiscard]] error objection_to(const rank_request& asked) const;

  rank self_;
  std::shared_ptr<rank_pipeline> pipeline_;
  nanoseconds default_deadline_{0};
  error closed_;
  ticket next_{1};
};

} // namespace troupe
