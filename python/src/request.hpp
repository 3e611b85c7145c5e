/// Operations of one rank as Python describes them, and requests that Python asks as often as it likes: operands and
/// their checks are done once.
#pragma once

#include "operand.hpp"
#include "reply.hpp"

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/world.hpp>

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::python {

struct asked_operation {
  operation what = barrier{};
  stream_source read{};                 ///< Of the operand that is read, or of both.
  stream_source written{};              ///< Of the one that is written, where it is another.
  std::vector<asked_operation> parts{}; ///< Of a group.
  bool is_virtual = false;              ///< Of a virtual world.

  [[nodiscard]] bool has_streams() const noexcept;
  /// As it is sent, with events behind what is in the streams now. \p first: those of the import will do.
  /// With the GIL. Errors: those of recording an event.
  [[nodiscard]] operation ready_now(bool first) const;
};

/// \p kind as the C++ operation is called; \p parameters: op, factor, root, peer, tag, staged, send_parts, recv_parts
/// (pairs of counts and displacements). Counts follow from the operands, in a world of \p size ranks. Errors:
/// invalid_argument.
[[nodiscard]] asked_operation make_operation(const std::string& kind, const given_operand* first,
                                             const given_operand* second, std::size_t size,
                                             const pybind11::dict& parameters);

void bind_operations(pybind11::module_& module);

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
