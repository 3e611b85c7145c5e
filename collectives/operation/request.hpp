/// What clients send: an operation, the epoch it is meant for, and how long they are willing to wait.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/order/lane.hpp>
#include <troupe/collectives/recording/call_site.hpp>
#include <troupe/completion/admission/credit.hpp>
#include <troupe/completion/poller/clock.hpp>

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
/// Name of \p order as written above.
[[nodiscard]] std::string_view to_string(ordering order) noexcept;
/// Errors: invalid_argument, naming the choices.
[[nodiscard]] ordering parse_ordering(std::string_view name);

/// Marks what is asked as rank_request::retry_safe and world_request::retry_safe do: the first argument of ask().
struct retry_safe_mark {};
inline constexpr retry_safe_mark retry_safe{};

/// One rank's request (SPMD): each rank's client asks its own rank.
struct rank_request {
  operation what;
  /// The epoch that the client goes on in (EPO-1). 0, none: the first that the world was ready in, in this process.
  /// After a rebuild ranks may differ in which requests they saw succeed. A request that names a later epoch says that
  /// they have been brought to one state since: keep it from the event that the client has acted on, and do not take
  /// the world's latest for each request (CUT-1, docs/recovery.md).
  troupe::epoch epoch{};
  nanoseconds deadline = world_default_deadline; ///< From acceptance to the reply.
  /// Under ordering::agreed: the lane, which at each rank belongs to the first client that asks in it.
  troupe::lane lane{};
  /// What the client takes for the request's place in the lane, from 0: so that a request lost or repeated on the way
  /// is noticed. None: the next.
  std::optional<std::uint64_t> position{};
  /// What it is charged to: see world::credit(). None: what all clients share.
  troupe::credit credit{};
  /// The client promises that it may be run again: it is out of place, what it reads has its values when it is asked
  /// (or from the ready events on) and keeps them until the reply, and nobody uses what it writes before that. Where
  /// every participant of the operation says so, none has been answered, and a fault is followed by a new epoch, it is
  /// not answered with the fault but run again there, before what its lane is asked for in that epoch; its deadline
  /// counts on. (docs/recovery.md) Only under ordering::agreed. Errors: invalid_argument (in place, or in two steps),
  /// unsupported (a replay; ordering::caller; ranks in other processes).
  bool retry_safe = false;
  /// Where it was asked for: the line that makes the request. For the flight recorder (docs/operations/tracing.md).
  call_site site = call_site::current();
};

/// One request for all ranks of a world that live in this process: parts[i] is rank i's. The world orders it (ORD-1)
/// and answers once, when the last rank is done.
struct world_request {
  std::vector<operation> parts;
  troupe::epoch epoch{}; ///< The world's epoch as the client knows it (EPO-1). 0, none: the present one.
  nanoseconds deadline = world_default_deadline;
  troupe::credit credit{}; ///< As rank_request's.
  /// As rank_request's, but that it stands in no lane: what is asked of the world in the new epoch does not wait for
  /// it.
  bool retry_safe = false;
  call_site site = call_site::current(); ///< As rank_request's.
};

} // namespace troupe
