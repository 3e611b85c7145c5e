/// Defines operations of one rank as Python describes them, and prepared requests, which Python can send many times:
/// operands are read and checked once.
#pragma once

#include "operand.hpp"
#include "reply.hpp"

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/operation/rank_function.hpp>
#include <troupe/runtime/interop/ask_into.hpp>
#include <troupe/runtime/world.hpp>

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::python {

struct asked_operation {
  operation what = barrier{};
  stream_source read{};                 ///< The stream of the operand that is read, or of both.
  stream_source written{};              ///< The stream of a separate operand that is written.
  std::vector<asked_operation> parts{}; ///< The parts of a group.
  bool is_virtual = false;              ///< Whether it belongs to a virtual world.

  [[nodiscard]] bool has_streams() const noexcept;
  /// Returns the operation to send, with events recorded in the streams now. If \p first, events of the import are
  /// used. The caller must hold the GIL. Errors: those of recording an event.
  [[nodiscard]] operation ready_now(bool first) const;
};

/// Makes an operation. \p kind is the name of the C++ operation. \p parameters are op, factor, root, peer, tag, staged,
/// commit, rule and value (bytes), send_parts and recv_parts (pairs of counts and displacements). Counts follow from
/// the operands, in a world of \p size ranks. Errors: invalid_argument.
[[nodiscard]] asked_operation make_operation(const std::string& kind, const given_operand* first,
                                             const given_operand* second, std::size_t size,
                                             const pybind11::dict& parameters);

/// Makes a call of \p function with \p arguments and \p values. Events are recorded in the streams of the arguments
/// now.
[[nodiscard]] asked_operation make_call(std::shared_ptr<const rank_function> function,
                                        const std::vector<const given_operand*>& arguments, const std::string& values);

void bind_operations(pybind11::module_& module);

/// A function that requests call: registered in this process, or a placeholder for those of other processes.
struct shown_function {
  std::shared_ptr<const rank_function> what;
};

/// A client of the rank that has this number at present, in one lane. Requests by number follow renumbered ranks, and
/// so must their client; a rank_lane stays with its GPU.
class lane_client {
public:
  lane_client(troupe::world where, rank target) : where_{std::move(where)}, target_{target}, number_{next_client()} {}
  lane_client(const lane_client&) = delete;
  lane_client& operator=(const lane_client&) = delete;
  ~lane_client() { leave(); }

  /// Returns its client number; 0 after leave().
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  void leave() noexcept {
    if (number_ != 0) leave_lanes(where_, target_, std::exchange(number_, 0));
  }

private:
  troupe::world where_;
  rank target_;
  std::uint64_t number_;
};

/// The recipient of a request: all ranks at once, or one rank, with or without a lane.
struct request_address {
  std::optional<rank> target{};
  std::shared_ptr<lane_client> client{}; ///< The client of the lane. Null: no client, the default lane.
  lane in{};
  std::shared_ptr<const epoch> acknowledged{}; ///< The acknowledged epoch of that rank and lane.
};

/// A request that can be sent many times. Threads: those that hold the GIL.
class prepared_request {
public:
  prepared_request(troupe::world where, std::vector<asked_operation> parts, request_address to, nanoseconds deadline,
                   held_object outputs);

  /// Sends the request: to all ranks with the world's current epoch, to one rank with the epoch that was acknowledged
  /// there. A copy without a lane uses the current epoch, because no peer takes part. Never blocks.
  [[nodiscard]] std::shared_ptr<reply> ask() { return send({}, {}); }
  /// Does the same in two steps: the reply reports the launch, too. \p stream: the request also waits, on the GPU, for
  /// the work that is now in this stream of the rank's device. Errors: unsupported (a request to all ranks).
  [[nodiscard]] std::shared_ptr<reply> ask_overlapped(std::optional<native_stream> stream);
  [[nodiscard]] const std::vector<asked_operation>& parts() const noexcept { return parts_; }

private:
  [[nodiscard]] std::shared_ptr<reply> send(const shared_event& ready, std::shared_ptr<device> launched_on);

  troupe::world world_;
  std::vector<asked_operation> parts_;
  request_address to_;
  nanoseconds deadline_;
  bool has_streams_;
  bool first_ = true;
  held_object outputs_;
};

} // namespace troupe::python
