/// Reports which ranks have not requested an operation, and the progress of every rank.
#pragma once

#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// One rank's operation, for messages to users.
struct operation_mark {
  std::string what{}; ///< As returned by describe(): "all_reduce of 1024 f32, sum".
  troupe::lane lane{};
  std::uint64_t position = 0; ///< Position among the rank's requests in the lane, from 0.
  operation_reach reach = operation_reach::all_ranks;
  std::optional<troupe::rank> peer{}; ///< For a send or recv, and for a group whose transfers have one peer.

  friend bool operator==(const operation_mark&, const operation_mark&) = default;
};

/// The progress of a rank: its last operation in each state; nullopt if there was none yet.
struct pipeline_progress {
  /// Numbers of operations that need all ranks, since the start of the epoch. Ranks are compared by these, because
  /// their numbers of other operations differ.
  struct counts {
    std::uint64_t submitted = 0;
    std::uint64_t launched = 0;
    std::uint64_t finished = 0;
  };

  std::optional<operation_mark> submitted{};
  std::optional<operation_mark> launched{};
  std::optional<operation_mark> started{};  ///< The last that was seen to run on the device.
  std::optional<operation_mark> finished{}; ///< The last that has succeeded.
  counts collectives{};
  std::optional<time_point> running_since{};   ///< Start time of `started`, if it has not finished.
  std::optional<time_point> launching_since{}; ///< Start time of a launch call that has not returned.
};

/// Describes an operation that waits, the ranks that have requested it, and the progress of every rank.
struct absence_report {
  /// The progress of one rank.
  struct standing {
    troupe::rank rank{};
    bool participates = false;                  ///< Whether the waiting operation needs the rank.
    bool asked = false;                         ///< Whether the rank has requested the waiting operation.
    std::optional<operation_mark> last_asked{}; ///< The newest request of this rank, in any lane of the world.
    std::optional<operation_mark>
        last_launched{}; ///< For a rank in another process: what it last reported to the controller.
    std::optional<operation_mark> last_finished{}; ///< As above.
  };

  std::uint32_t world = 0;
  std::string sub_world{}; ///< In a controller: the name of the world's group, if it was split off. Else empty.
  std::string what{};      ///< The operation that waits.
  troupe::lane lane{};
  nanoseconds waited{0};
  std::vector<standing> ranks{}; ///< All ranks of the world, in order.

  /// Returns the participating ranks that have not requested the operation.
  [[nodiscard]] std::vector<troupe::rank> missing() const;
};

/// Returns text for people, e.g. "all_reduce of 1024 f32, sum in lane decode has waited 2.0 s: ranks 2, 3 have not
/// asked, ranks 0, 1 have; rank 2 last asked for barrier (lane decode, request 7), …". It names at most eight ranks of
/// each kind.
[[nodiscard]] std::string describe(const absence_report& report);
/// Returns one line for people, e.g. "all_reduce of 1024 f32, sum (lane decode, request 7)".
[[nodiscard]] std::string describe(const operation_mark& one);
/// Returns a list of ranks as text, e.g. "rank 2", "ranks 2, 3" or "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more".
[[nodiscard]] std::string name_ranks(const std::vector<rank>& all);
/// Returns a duration as text, e.g. "2.0 s" or "150.0 ms".
[[nodiscard]] std::string describe(nanoseconds span);

} // namespace troupe
