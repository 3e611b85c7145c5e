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
  launched, ///< It went on to the device.
  withheld, ///< The script keeps the rank from its peers: nothing reached the device.
  refused,  ///< The script made the launch fail.
};
/// Returns the name of \p fate as written above.
[[nodiscard]] std::string_view to_string(launch_fate fate) noexcept;

/// The request that an operation was launched for.
struct launch_asker {
  ticket request;             ///< As in its completion: the ticket among the requests to this rank, or to the world.
  bool of_world = false;      ///< Whether it is one part of a request to all ranks. Such a request is in no lane.
  lane in{};                  ///< For a request to a rank.
  std::uint64_t position = 0; ///< Among the rank's requests in that lane, from 0.
  /// caf::actor::id() or rank_lane::client() of the client; 1 in virtual worlds; 0: a thread.
  std::uint64_t client = 0;
  troupe::rank rank{};   ///< The rank that was asked, and
  troupe::epoch epoch{}; ///< the epoch. For a sub-world, its own rank and epoch.
};

/// One operation that a rank's launcher passed to its communicator.
struct launch_record {
  troupe::rank rank{};
  /// The world's epoch: forming k is epoch k + 1. Sub-worlds have the epoch of their parent.
  troupe::epoch epoch{};
  std::uint64_t number = 0; ///< Index among the rank's operations in the epoch, from 0. A group is one.
  /// Index of the rank's launch call in the epoch, from 0. Operations launched together share it.
  std::uint64_t call = 0;
  std::string_view operation{}; ///< "all_reduce": name_of().
  /// In elements; for a group, the number of its parts; 0 for operations without elements.
  std::size_t count = 0;
  std::string text{}; ///< describe().
  /// The start of the memory that is read; for a group, that of its first part. Null: nothing is read.
  const void* send = nullptr;
  const void* recv = nullptr; ///< The same for the memory that is written.
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
