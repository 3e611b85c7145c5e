/// How one stream's "the GPU is done" becomes visible to the CPU: the seam between completion strategies.
#pragma once

#include <troupe/completion/sources/slot_table.hpp>
#include <troupe/device/stream.hpp>

#include <cstdint>
#include <memory>
#include <string_view>

namespace troupe {

/// What is enqueued behind an operation so that its end is seen.
enum class completion_strategy : std::uint8_t {
  flag,      ///< The GPU writes a word of pinned memory; a look costs one load.
  event,     ///< An untimed event; a look is a driver call.
  host_fn,   ///< A host function in the stream; a look costs one load, but the driver's thread must wake to call it.
  automatic, ///< "auto": flag where the device's streams can write words, else event.
             ///< (docs/design/0007-strategy-by-rule.md)
};

/// Those that are done in a way of their own, so all but automatic.
inline constexpr completion_strategy all_completion_strategies[] = {
    completion_strategy::flag, completion_strategy::event, completion_strategy::host_fn};

[[nodiscard]] std::string_view to_string(completion_strategy strategy) noexcept;
/// The strategy called \p name. Errors: invalid_argument, naming those that exist.
[[nodiscard]] completion_strategy parse_completion_strategy(std::string_view name);

/// One stream's source of completions. Operations are numbered from 1 in stream order.
/// Threads: arm() on the launcher, reached() on the poller.
class completion_source {
public:
  completion_source() = default;
  completion_source(const completion_source&) = delete;
  completion_source& operator=(const completion_source&) = delete;
  virtual ~completion_source() = default;

  /// Makes what it needs on the device, before the first arm(); on a thread that may block.
  virtual void prepare(const std::shared_ptr<device>& where) = 0;
  /// Enqueues the sign that operation \p sequence is done. Sequences are armed in order, without gaps.
  virtual void arm(stream_ref stream, std::uint64_t sequence) = 0;
  /// Whether \p sequence is done. Throws the device's error if there is one.
  [[nodiscard]] virtual bool reached(std::uint64_t sequence) = 0;
  /// Says that the stream has drained and is armed no more: what the source uses may be reused. On a thread that may
  /// block.
  virtual void drained() noexcept = 0;
};

/// What \p asked comes to on device \p id: never automatic. Errors: unsupported (flag, without word operations).
[[nodiscard]] completion_strategy choose_strategy(completion_strategy asked, driver& api, device_id id);

/// Errors: those of choose_strategy(), and of the device.
[[nodiscard]] std::unique_ptr<completion_source> make_completion_source(completion_strategy strategy,
                                                                        const std::shared_ptr<device>& where,
                                                                        std::shared_ptr<slot_table> slots);

} // namespace troupe
