/// Interface of the completion strategies, which make it visible to the CPU that the GPU is done with an operation.
#pragma once

#include <troupe/completion/sources/slot_table.hpp>
#include <troupe/device/stream.hpp>

#include <cstdint>
#include <memory>
#include <string_view>

namespace troupe {

/// The mechanism that is enqueued behind an operation to signal its end.
enum class completion_strategy : std::uint8_t {
  flag,      ///< The GPU writes a word of pinned memory; a check costs one load.
  event,     ///< An event without timing; a check is a driver call.
  host_fn,   ///< A host function in the stream; a check costs one load, but the driver's thread must wake to call it.
  automatic, ///< "auto": flag if the device's streams can write words, else event.
             ///< (docs/design/0007-strategy-by-rule.md)
};

/// The concrete strategies, that is, all except automatic.
inline constexpr completion_strategy all_completion_strategies[] = {
    completion_strategy::flag, completion_strategy::event, completion_strategy::host_fn};

[[nodiscard]] std::string_view to_string(completion_strategy strategy) noexcept;
/// Returns the strategy called \p name. Errors: invalid_argument, naming the existing strategies.
[[nodiscard]] completion_strategy parse_completion_strategy(std::string_view name);

/// The source of completions of one stream. Operations are numbered from 1 in stream order.
/// Threads: arm() is called on the launcher, reached() on the poller.
class completion_source {
public:
  completion_source() = default;
  completion_source(const completion_source&) = delete;
  completion_source& operator=(const completion_source&) = delete;
  virtual ~completion_source() = default;

  /// Creates the required objects on the device, before the first arm(). Called on a thread that may block.
  virtual void prepare(const std::shared_ptr<device>& where) = 0;
  /// Enqueues the completion signal of operation \p sequence. Sequences are armed in order, without gaps.
  virtual void arm(stream_ref stream, std::uint64_t sequence) = 0;
  /// Returns whether \p sequence is done. Throws the device's error if there is one.
  [[nodiscard]] virtual bool reached(std::uint64_t sequence) = 0;
  /// States that the stream has drained and is not armed any more, so the resources of the source may be reused. Called
  /// on a thread that may block.
  virtual void drained() noexcept = 0;
};

/// Returns the concrete strategy for \p asked on device \p id, never automatic. Errors: unsupported (flag, without word
/// operations).
[[nodiscard]] completion_strategy choose_strategy(completion_strategy asked, driver& api, device_id id);

/// Creates a source for a stream of \p where. Errors: those of choose_strategy() and of the device.
[[nodiscard]] std::unique_ptr<completion_source> make_completion_source(completion_strategy strategy,
                                                                        const std::shared_ptr<device>& where,
                                                                        std::shared_ptr<slot_table> slots);

} // namespace troupe
