/// Reports which ranks have not asked for an operation, and how far every rank is.
#pragma once

#include <troupe/collectives/order/lane.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// The ranks that an operation needs.
enum class operation_reach : std::uint8_t {
  all_ranks, ///< A collective, or a group that contains one.
  peers,     ///< A send, a recv, or a group of only these.
  itself,    ///< A copy.
};

/// One rank's operation, for messages to users.
struct operation_mark {
  std::string what{}; ///< As returned by describe(): "all_reduce of 1024 f32, sum".
  troupe::lane lane{};
  std::uint64_t position = 0; ///< Among the rank's requests in the lane, from 0.
  operation_reach reach = operation_reach::all_ranks;
  std::optional<troupe::rank> peer{}; ///< For a send or recv.
};

/// An operation that waits, the ranks that have asked for it, and how far every rank is.
struct absence_report {
  /// How far one rank is.
  struct standing {
    troupe::rank rank{};
    bool participates = false;                     ///< In the operation that waits.
    bool asked = false;                            ///< For the operation that waits.
    std::optional<operation_mark> last_asked{};    ///< The newest request of this rank, in any lane of the world.
    std::optional<operation_mark> last_launched{}; ///< Filled in where the ranks' pipelines are known.
    std::optional<operation_mark> last_finished{};
  };

  std::uint32_t world = 0;
  std::string what{}; ///< The operation that waits.
  troupe::lane lane{};
  nanoseconds waited{0};
  bool held = false;             ///< The lane is held: operations that a fault interrupted are run again first.
  std::vector<standing> ranks{}; ///< All ranks of the world, in order.

  /// Returns the ranks that take part and have not asked.
  [[nodiscard]] std::vector<troupe::rank> missing() const;
};

/// Returns "all_reduce of 1024 f32, sum in lane decode has waited 2.0 s: ranks 2, 3 have not asked, ranks 0, 1 have;
/// rank 2 last asked for barrier (lane decode, request 7), …". Of many ranks it names the first eight.
[[nodiscard]] std::string describe(const absence_report& report);
/// Returns "all_reduce of 1024 f32, sum (lane decode, request 7)".
[[nodiscard]] std::string describe(const operation_mark& one);
/// Returns "rank 2", "ranks 2, 3", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more".
[[nodiscard]] std::string name_ranks(const std::vector<rank>& all);
/// Returns "2.0 s", "150.0 ms".
[[nodiscard]] std::string describe(nanoseconds span);

} // namespace troupe
