/// The requests that clients send: an operation with its epoch, deadline and lane.
#pragma once

#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/completion/admission/credit.hpp>
#include <troupe/completion/reply/outcome.hpp>
#include <troupe/device/enum_names.hpp>
#include <troupe/device/per_rank.hpp>
#include <troupe/device/time.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace troupe {

/// Like std::source_location, which clang supports only since version 16. As a default argument or default member
/// initializer, current() returns the caller's line. Lifetime: \c file is a literal of the program, or of a library
/// that stays loaded as long as the runtime.
struct call_site {
  const char* file = nullptr; ///< Null: unknown.
  unsigned line = 0;

  /// Returns the place of the call.
  [[nodiscard]] static constexpr call_site current(const char* file = __builtin_FILE(),
                                                   unsigned line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

/// Value of a deadline that is not set: the world's default deadline applies.
inline constexpr nanoseconds world_default_deadline{0};

/// Defines who ensures that all ranks launch the same operations in the same order (ORD-1) if each rank has its own
/// client. A world has one setting.
enum class ordering : std::uint8_t {
  /// troupe ensures it: requests are matched by lane, checked against each other, and launched when all ranks have
  /// requested the operation. If a rank does not, the requests of its peers wait until their deadline and then fail
  /// with an error that reports the missing ranks.
  agreed,
  /// The clients ensure it. They promise to request the same collectives in the same order at every rank. Lanes and
  /// positions are ignored. A request goes straight to its GPU; a broken promise hangs the GPUs until limits.hang
  /// expires.
  caller,
};
/// Returns the ordering with this name. Errors: invalid_argument, which lists the choices.
[[nodiscard]] inline ordering parse_ordering(std::string_view name) {
  return parse_enum<ordering>("ordering", name);
}

/// One rank's request (SPMD): each client sends requests to its own rank.
struct rank_request {
  operation what;
  /// The epoch in which the client continues (EPO-1). 0 means not set: the first epoch in which the world was ready in
  /// this process. After a rebuild, ranks may differ in which requests they saw succeed. A request with a later epoch
  /// states that the client has since brought the ranks to one state. Store the epoch of the event that the client has
  /// acted on. Do not read the world's latest epoch for each request (CUT-1, docs/recovery.md).
  troupe::epoch epoch{};
  nanoseconds deadline = world_default_deadline; ///< Time from acceptance to the reply.
  /// The lane, under ordering::agreed. At each rank a lane belongs to the first client that uses it.
  troupe::lane lane{};
  /// The position in the lane that the client expects for this request, counted from 0. It reveals a request that was
  /// lost or repeated on the way. Empty: the next position.
  std::optional<std::uint64_t> position{};
  /// The credit that the request is charged to: see world::credit(). If empty, it is charged to the quota that all
  /// clients share.
  troupe::credit credit{};
  /// The source line that makes the request, for the flight recorder (docs/operations/tracing.md).
  call_site site = call_site::current();
};

/// One request for all ranks of a world: parts[i] is for rank i. The operands of ranks in other processes are remote
/// buffers. The world orders it (ORD-1) and answers once, when the last rank is done.
struct world_request {
  std::vector<operation> parts;
  troupe::epoch epoch{}; ///< The world's epoch as the client knows it (EPO-1). 0: the current epoch.
  nanoseconds deadline = world_default_deadline;
  troupe::credit credit{};               ///< As in rank_request.
  call_site site = call_site::current(); ///< As in rank_request.
};

/// Returns one outcome for each part of \p asked, from its reply \p whole. If the group succeeded, all parts succeeded
/// at the same time. If it was rejected, no part ran: the part at fault (error::part) has the reason, and the others
/// refer to it. If the outcome is unknown, it is unknown for every part.
[[nodiscard]] std::vector<outcome> part_outcomes(const group& asked, const outcome& whole);

/// The last argument of every method that sends a request, with designators: {.deadline = 5s, .staged = true}.
/// Fields that are not named keep their defaults. A lane is chosen by the handle (rank_lane); a position in it only by
/// rank_request.
struct request_options {
  nanoseconds deadline = world_default_deadline; ///< Time from acceptance to the reply.
  /// The epoch that the request is for (EPO-1). If it is not set (0), a world uses its current epoch. A rank uses the
  /// epoch that the lane has acknowledged or, without a lane, the world's first epoch (rank_request::epoch).
  troupe::epoch epoch{};
  /// Events in streams of the client that the request waits for on the device, one for each rank of the request. Each
  /// event is attached to an operand that has no event. The request also waits for the events that operands already
  /// have. Errors, thrown: invalid_argument (a different number of events, or no operand without an event).
  per_rank<shared_event> ready{};
  troupe::credit credit{}; ///< See rank_request::credit. If empty, a lane uses its own credit.
  bool staged = false;     ///< Sets `staged` in every operation that has it: see operand.
};

/// Applies the options that concern memory, \p ready and \p staged, to \p parts. Errors: invalid_argument.
void prepare_operands(std::span<operation> parts, const per_rank<shared_event>& ready, bool staged);

/// Returns the parts of a transfer between two of \p world_size ranks: a send for \p source, a recv for \p destination,
/// both in groups, and empty groups for the others. Errors: invalid_argument (not a rank of the world).
[[nodiscard]] std::vector<operation> transfer_parts(int world_size, rank source, operand from, rank destination,
                                                    operand to, std::size_t count, dtype type, int tag);

/// Returns the request for \p parts, one for each rank, with \p options. Errors: those of request_options.
[[nodiscard]] world_request make_request(std::vector<operation> parts, request_options options,
                                         call_site from = call_site::current());
/// Returns the request for one rank with \p options, in the default lane. Errors: those of request_options.
[[nodiscard]] rank_request make_request(operation what, request_options options, call_site from = call_site::current());

} // namespace troupe
