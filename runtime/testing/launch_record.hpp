/// What a rank of a mock world was told to launch, and who had asked for it.
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

/// What became of a launch.
enum class launch_fate : std::uint8_t {
  launched, ///< It went on to the device.
  withheld, ///< The script keeps the rank from its peers: nothing reached the device.
  refused,  ///< The script made the launch fail.
};
/// Name of \p fate as written above.
[[nodiscard]] std::string_view to_string(launch_fate fate) noexcept;

/// The request that an operation was launched for.
struct launch_asker {
  ticket request;             ///< As its completion has it: of the requests to this rank, or to the world.
  bool of_world = false;      ///< One part of a request to all ranks; it stands in no lane.
  lane in{};                  ///< Of a request to a rank.
  std::uint64_t position = 0; ///< Among the rank's requests in that lane, from 0.
  std::uint64_t client = 0;   ///< caf::actor::id() of who asked, rank_lane::client(), in virtual worlds 1; 0: a thread.
  troupe::rank rank{};        ///< Whom it was for, and
  troupe::epoch epoch{};      ///< in which epoch: a sub-world's own, where it was asked.
};

/// One operation, as a rank's launcher brought it to its communicator.
struct launch_record {
  troupe::rank rank{};
  /// The world's: its k-th forming is epoch k + 1. Sub-worlds count as their parent.
  troupe::epoch epoch{};
  std::uint64_t number = 0;     ///< Of the rank's operations in the epoch, from 0; a group is one.
  std::uint64_t call = 0;       ///< Of its launch calls in the epoch, from 0: what is launched together shares one.
  std::string_view operation{}; ///< "all_reduce": name_of().
  std::size_t count = 0;        ///< In elements; of a group, its parts; 0 of what has none.
  std::string text{};           ///< describe().
  const void* send = nullptr;   ///< Where what is read begins; of a group, its first part's. null: nothing.
  const void* recv = nullptr;   ///< The same of what is written.
  launch_fate fate = launch_fate::launched;
  time_point at{};
  std::optional<launch_asker> by{}; ///< None: no request, but a plan that is captured.
};

/// "all_reduce of 64 f32, sum; in lane default (request 3), by client 17; epoch 1, withheld".
[[nodiscard]] std::string describe(const launch_record& one);

/// What \p what brings to its communicator; who, which and when are left to fill in.
[[nodiscard]] launch_record record_of(const operation& what);

/// The operations' names, in order: {"all_reduce", "barrier"}.
[[nodiscard]] std::vector<std::string_view> names_of(const std::vector<launch_record>& all);

} // namespace troupe::testing
