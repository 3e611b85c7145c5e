/// Interface of the completion strategies, which make it visible to the CPU that the GPU is done with an operation.
#pragma once

#include <troupe/completion/completion_settings.hpp>
#include <troupe/completion/sources/slot_table.hpp>
#include <troupe/device/stream.hpp>

#include <cstdint>
#include <memory>
#include <string_view>

namespace troupe {

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
