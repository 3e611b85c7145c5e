/// Who has not come to an operation, and where everybody is.
#pragma once

#include <troupe/collectives/sequencing/lane.hpp>
#include <troupe/completion/clock.hpp>
#include <troupe/device/identity.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// An operation of one rank, for people.
struct operation_mark {
  std::string what{}; ///< As describe() has it: "all_reduce of 1024 f32, sum".
  troupe::lane lane{};
  std::uint64_t position = 0; ///< Among the rank's requests in the lane, from 0.
};

struct absence_report {
  struct standing {
    troupe::rank rank{};
    bool participates = false;                     ///< In the operation that waits.
    bool asked = false;                            ///< For it.
    std::optional<operation_mark> last_asked{};    ///< The newest request of this rank, in any lane of the world.
    std::optional<operation_mark> last_launched{}; ///< Filled in by whoever knows the ranks' pipelines.
    std::optional<operation_mark> last_finished{};
  };

  std::uint32_t world = 0;
  std::string what{}; ///< The operation that waits.
  troupe::lane lane{};
  nanoseconds waited{0};
  std::vector<standing> ranks{}; ///< All of the world, in order.

  [[nodiscard]] std::vector<troupe::rank> missing() const;
};

/// "all_reduce of 1024 f32, sum in lane decode has waited 2.0 s: ranks 2, 3 have not asked, ranks 0, 1 have; rank 2
/// last asked for barrier (lane decode, request 7), …": of many ranks the first eight.
[[nodiscard]] std::string describe(const absence_report& report);
/// "2.0 s", "150.0 ms".
[[nodiscard]] std::string describe(nanoseconds span);

} // namespace troupe
