/// Errors in a form that a program can act on, with the memory whose contents became undefined (ONE-2). The text is for
/// people and is never parsed.
#pragma once

#include <troupe/device/identity.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A memory range that a request with unknown outcome may have written, fully, partly or not at all.
struct undefined_buffer {
  troupe::rank rank;                 ///< The rank whose part of the request writes it.
  std::optional<device_id> device{}; ///< The device that holds it; empty for host memory.
  const void* address = nullptr;     ///< Address of the first byte, as returned by buffer::data().
  std::size_t size_bytes = 0;

  friend bool operator==(const undefined_buffer&, const undefined_buffer&) = default;
};

/// Ranges in ascending order of ranks and, within a rank, in the order of the operation's arguments.
using undefined_buffers = std::vector<undefined_buffer>;

/// Returns a description, e.g. "4096 bytes at 0x7f00 on device 1 (rank 1)".
[[nodiscard]] std::string describe(const undefined_buffer& one);
/// Returns a list of descriptions: at most the first few, then the number of remaining ones.
[[nodiscard]] std::string describe(const undefined_buffers& all);

struct absence_report; // collectives/progress/absence_report.hpp

/// The kind of a failure. Each value says what the caller should do.
enum class errc : std::uint8_t {
  none = 0,            ///< No failure.
  invalid_argument,    ///< Fix the call: the text names the value and the limit.
  unsupported,         ///< Use another operation or setting: this device or library does not support it.
  mismatch,            ///< Fix the callers: ranks disagree about one operation.
  wrong_device,        ///< Pass a buffer that lives on the rank's own device.
  stale_buffer,        ///< Allocate again: the device has lost its memory since the allocation.
  stale_epoch,         ///< Bring the ranks to one state, acknowledge the world's current epoch, then retry.
  out_of_memory,       ///< Free something, or ask for less.
  missing,             ///< Install what the text names (driver, library, device).
  too_old,             ///< Upgrade what the text names.
  device_occupied,     ///< Free the device or choose another: another process holds it exclusively.
  busy,                ///< Retry when earlier requests have been answered: too many are waiting.
  cancelled,           ///< Nothing, or retry: the request was withdrawn by its client or a peer of the operation.
  stopping,            ///< Nothing: the world is shutting down.
  rebuilding,          ///< Retry when the world is ready (wait_ready()): it is being rebuilt after a fault.
  rank_lost,           ///< Use a remaining rank: this one has left its world, which continues without it.
  world_failed,        ///< Form a new world: this one has failed and says why.
  deadline_exceeded,   ///< Retry later or allow more time; output buffers are undefined if the work ran.
  communicator_failed, ///< Continue when the world is ready again (wait_ready()): its communicator has failed.
  device_failed,       ///< Continue when the world is ready again (wait_ready()): the device reported an error.
  process_poisoned,    ///< Replace the process: a sticky device error cannot be undone in it.
  abandoned,           ///< Retry: the actor that held the request has terminated.
  internal,            ///< Report a bug in troupe.
};

/// Returns the name of \p code as written above.
[[nodiscard]] std::string_view to_string(errc code) noexcept;

/// Whether failed work may have touched memory (ONE-2).
enum class effect : std::uint8_t {
  rejected,        ///< The work certainly did not run; buffers are as they were.
  unknown_outcome, ///< The work may have run; the output buffers' contents are undefined.
};

/// One failure with its context.
struct error {
  errc code = errc::none;
  troupe::effect effect = troupe::effect::rejected;
  std::string text{};        ///< For people: the value, the limit, the remedy.
  std::string call{};        ///< The external call that failed, e.g. "ncclAllReduce"; empty if none.
  int native_code = 0;       ///< The error code of that call.
  std::string native_text{}; ///< The error text of that call.
  std::optional<troupe::rank> rank{};
  std::optional<troupe::ticket> ticket{};
  std::optional<troupe::epoch> epoch{};
  std::optional<std::size_t> part{}; ///< For a group: the index of the part that failed.
  /// The missing peers, if peers did not request the operation, or if it was withdrawn for that reason.
  std::shared_ptr<const absence_report> absence{};
  /// With unknown outcome: the buffers that the request may have written, over all its parts with an unknown outcome.
  /// Null if unknown, because the request was lost before it reached a rank (its actor ended with it in the mailbox).
  std::shared_ptr<const undefined_buffers> undefined{};

  /// Returns whether this is a failure.
  [[nodiscard]] explicit operator bool() const noexcept { return code != errc::none; }
};

/// Returns \p failure as one line of text.
[[nodiscard]] std::string to_string(const error& failure);
/// Returns \p reason as one line for the text of another error, or of an event. It does not state the effect, which is
/// that on another request.
[[nodiscard]] std::string describe_reason(const error& reason);

/// Returns \p failure with its effect set to unknown_outcome.
[[nodiscard]] error with_unknown_outcome(error failure);

/// Exception thrown by constructors and on synchronous misuse. Asynchronous outcomes are values.
class exception : public std::exception {
public:
  /// Stores \p why. what() returns it as one line.
  explicit exception(error why);
  /// Stores an error that has only a code and a text.
  exception(errc code, std::string text);

  /// Returns the error for programs.
  [[nodiscard]] const error& why() const noexcept { return why_; }
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

private:
  error why_;
  std::string text_;
};

/// Throws the failure of a system call, with the system's text. \p native_code: the error number; 0: errno.
[[noreturn]] void throw_system_error(errc code, const char* call, std::string text, int native_code = 0);

/// Returns the error that corresponds to the exception being handled. Call it only inside a catch block.
[[nodiscard]] error current_error() noexcept;

} // namespace troupe
