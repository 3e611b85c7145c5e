/// What clients send: an operation, the epoch it is meant for, and how long they are willing to wait.
#pragma once

#include <troupe/collectives/operation.hpp>
#include <troupe/collectives/sequencing/lane.hpp>
#include <troupe/completion/clock.hpp>
#include <troupe/completion/credit.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace troupe {

/// How long a request may take when it does not say.
inline constexpr nanoseconds world_default_deadline{0};

/// Who sees to it that all ranks launch the same operations in the same order (ORD-1), where each rank is asked by a
/// client of its own. A world has one.
enum class ordering : std::uint8_t {
  /// troupe: requests are matched by lane, checked against each other, and launched when all ranks have asked. A rank
  /// that is not asked leaves its peers' requests waiting, with a report of who is missing at their deadline.
  agreed,
  /// The clients, who promise that every rank is asked for the same collectives in the same order, without tags. A
  /// request goes straight to its GPU; a broken promise hangs the GPUs until the verdict of limits.hang.
  caller,
};
[[nodiscard]] std::string_view to_string(ordering order) noexcept;
/// Errors: invalid_argument, naming the choices.
[[nodiscard]] ordering parse_ordering(std::string_view name);

/// One rank's request (SPMD): each rank's client asks its own rank.
struct rank_request {
  operation what;
  troupe::epoch epoch;                           ///< The world's epoch as the client knows it (EPO-1).
  nanoseconds deadline = world_default_deadline; ///< From acceptance to the reply.
  /// Under ordering::agreed: the lane, which at each rank belongs to the first client that asks in it.
  troupe::lane lane{};
  /// What the client takes for the request's place in the lane, from 0: so that a request lost or repeated on the way
  /// is noticed. None: the next.
  std::optional<std::uint64_t> position{};
  /// What it is charged to: see world::credit(). None: what all clients share.
  troupe::credit credit{};
};

/// One request for all ranks of a world that live in this process: parts[i] is rank i's. The world orders it (ORD-1)
/// and answers once, when the last rank is done.
struct world_request {
  std::vector<operation> parts;
  troupe::epoch epoch;
  nanoseconds deadline = world_default_deadline;
  troupe::credit credit{}; ///< As rank_request's.
};

} // namespace troupe
