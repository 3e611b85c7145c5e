/// Requests that Python asks as often as it likes: operands and their checks are done once.
#pragma once

#include "asked_operation.hpp"
#include "reply.hpp"

#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/world.hpp>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::python {

/// To whom: all ranks at once, or one, in a lane or none.
struct request_address {
  std::optional<rank> whom{};
  std::shared_ptr<rank_lane> client{}; ///< Of the lane; null: nobody in particular, in the default lane.
  lane in{};
  std::shared_ptr<const epoch> acknowledged{}; ///< Of that rank and lane; where one rank is asked.
};

/// Threads: those that hold the GIL.
class prepared_request {
public:
  prepared_request(troupe::world where, std::vector<asked_operation> parts, request_address to, nanoseconds deadline,
                   bool is_retry_safe, held_object outputs);

  /// Sends it: to all ranks for the world's present epoch, to one for the epoch that was acknowledged there. A copy
  /// outside of lanes is for the present one, since no peer takes part. Never blocks.
  [[nodiscard]] std::shared_ptr<reply> ask();
  [[nodiscard]] const std::vector<asked_operation>& parts() const noexcept { return parts_; }

private:
  troupe::world world_;
  std::vector<asked_operation> parts_;
  request_address to_;
  nanoseconds deadline_;
  bool is_retry_safe_;
  bool has_streams_;
  bool first_ = true;
  held_object outputs_;
};

} // namespace troupe::python
