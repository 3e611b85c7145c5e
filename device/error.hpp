/// What went wrong, in a form that a program can act on. Text is for people and is never parsed.
#pragma once

#include <troupe/device/identity.hpp>
#include <troupe/device/memory/undefined_buffer.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

struct absence_report; // collectives/order/absence_report.hpp

/// The kind of a failure. Each value says what the caller should do.
enum class errc : std::uint8_t {
  none = 0,            ///< No failure.
  invalid_argument,    ///< Fix the call: the text names the value and the limit.
  unsupported,         ///< Ask for something else: this device or library cannot do it.
  mismatch,            ///< Fix the callers: ranks disagree about one operation.
  wrong_device,        ///< Pass a buffer that lives on the rank's own device.
  stale_buffer,        ///< Allocate again: the device has lost its memory since.
  stale_epoch,         ///< Bring the ranks to one state, then ask again in the world's present epoch (acknowledge it).
  out_of_memory,       ///< Free something, or ask for less.
  missing,             ///< Install what the text names (driver, library, device).
  too_old,             ///< Upgrade what the text names.
  device_occupied,     ///< Free the device or choose another: someone else holds it exclusively.
  busy,                ///< Ask again when earlier requests have been answered: too many wait.
  cancelled,           ///< Nothing, or ask again: it was taken back, by its asker or by a peer of the operation.
  stopping,            ///< Nothing: the world is shutting down.
  rebuilding,          ///< Ask again when the world is ready: it forms anew after a fault.
  rank_lost,           ///< Ask a rank that remains: this one has left its world, which goes on without it.
  world_failed,        ///< Form a new world: this one has failed and says why.
  deadline_exceeded,   ///< Retry later or give more time; output buffers are undefined if it ran.
  communicator_failed, ///< Form a new world: the communicator reported an error or was aborted.
  device_failed,       ///< Form a new world: the device reported an error.
  process_poisoned,    ///< Replace the process: a sticky device error cannot be undone in it.
  abandoned,           ///< Ask again: the actor that held the request is gone.
  internal,            ///< Report a bug in troupe.
};

/// Name of \p code as written above.
[[nodiscard]] std::string_view to_string(errc code) noexcept;

/// Whether failed work may have touched memory (ONE-2).
enum class effect : std::uint8_t {
  rejected,        ///< The work certainly did not run; buffers are as they were.
  unknown_outcome, ///< The work may have run; the output buffers' contents are undefined.
};

/// One failure with its circumstances.
struct error {
  errc code = errc::none;
  troupe::effect effect = troupe::effect::rejected;
  std::string text{};        ///< For people: the value, the limit, the remedy.
  std::string call{};        ///< The foreign call that failed, e.g. "ncclAllReduce"; empty if none.
  int native_code = 0;       ///< That call's own code.
  std::string native_text{}; ///< That call's own words.
  std::optional<troupe::rank> rank{};
  std::optional<troupe::ticket> ticket{};
  std::optional<troupe::epoch> epoch{};
  std::optional<std::size_t> part{}; ///< Of a group: the part at fault.
  /// Where peers of an operation did not come, or took it back because of that: who is missing.
  std::shared_ptr<const absence_report> absence{};
  /// With unknown outcome: what the request may have written, in all its parts whose outcome is unknown. Null where
  /// that is not known, since the request was lost before it came to a rank (an actor that ended with it in its
  /// mailbox).
  std::shared_ptr<const undefined_buffers> undefined{};

  /// True when this is a failure.
  [[nodiscard]] explicit operator bool() const noexcept { return code != errc::none; }
};

/// \p failure as one line.
[[nodiscard]] std::string to_string(const error& failure);

/// \p failure, saying that the work may have run.
[[nodiscard]] error with_unknown_outcome(error failure);

/// What constructors and synchronous misuse throw. Asynchronous outcomes are values.
class exception : public std::exception {
public:
  /// Holds all of \p why; what() is its one line.
  explicit exception(error why);
  /// The same of an error that has only these.
  exception(errc code, std::string text);

  /// The error, for programs.
  [[nodiscard]] const error& why() const noexcept { return why_; }
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

private:
  error why_;
  std::string text_;
};

/// The error that the exception in flight stands for. Call it inside a catch block only.
[[nodiscard]] error current_error() noexcept;

} // namespace troupe
