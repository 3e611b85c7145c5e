/// Records what a rank of a mock world launched, and the request that it was for.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/order/lane.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::testing {

/// The result of a launch.
enum class launch_fate : std::uint8_t {
  launched, ///< The launch reached the device.
  withheld, ///< The script withheld the launch: nothing reached the device.
  refused,  ///< The script made the launch fail.
};
/// Returns the name of \p fate as written above.
[[nodiscard]] std::string_view to_string(launch_fate fate) noexcept;

/// The request that an operation was launched for.
struct launch_asker {
  ticket request;             ///< The ticket of the request, as in its completion.
  bool of_world = false;      ///< Whether the request is to all ranks. Such a request has no lane.
  lane in{};                  ///< The lane of a request to a rank.
  std::uint64_t position = 0; ///< The index among the rank's requests in that lane, from 0.
  /// The client: its caf::actor::id() or rank_lane::client(); 1 in virtual worlds; 0 for a thread.
  std::uint64_t client = 0;
  troupe::rank rank{};   ///< The rank that received the request. For a sub-world, its own rank.
  troupe::epoch epoch{}; ///< The epoch of the request. For a sub-world, its own epoch.
};

/// One operation that a rank's launcher passed to its communicator.
struct launch_record {
  troupe::rank rank{};
  /// The world's epoch: forming k is epoch k + 1. Sub-worlds have the epoch of their parent.
  troupe::epoch epoch{};
  std::uint64_t number = 0; ///< Index among the rank's operations in the epoch, from 0. A group is one.
  /// Index of the rank's launch call in the epoch, from 0. Operations launched together share it.
  std::uint64_t call = 0;
  std::string_view operation{}; ///< The name of the operation, from name_of(): "all_reduce".
  /// The number of elements; for a group, the number of its parts; 0 for operations without elements.
  std::size_t count = 0;
  std::string text{}; ///< The operation as text, from describe().
  /// The start of the memory that the operation reads; for a group, that of its first part. Null: it reads nothing.
  const void* send = nullptr;
  const void* recv = nullptr; ///< The start of the memory that it writes, likewise.
  launch_fate fate = launch_fate::launched;
  time_point at{};
  std::optional<launch_asker> by{}; ///< Empty: the launch is for a plan that is being captured.
};

/// Returns text of the form "all_reduce of 64 f32, sum; in lane default (request 3), by client 17; epoch 1, withheld".
[[nodiscard]] std::string describe(const launch_record& one);

/// Returns the record of the operation \p what. The rank, the request, the numbers and the time are not filled in.
[[nodiscard]] launch_record record_of(const operation& what);

/// Returns the operations' names in order: {"all_reduce", "barrier"}.
[[nodiscard]] std::vector<std::string_view> names_of(const std::vector<launch_record>& all);

} // namespace troupe::testing
