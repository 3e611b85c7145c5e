/// Orders the library's kernels behind one-shot kernels of other communicators on the same device, so that no
/// dependency between communicators lets them exclude each other (docs/design/0106-one-shot-collectives.md).
#pragma once

#include <troupe/device/stream.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

/// The streams of one device in this process whose communicators may have one-shot kernels. A launch of the library
/// waits on the device for all one-shot kernels that were launched there earlier, also in other streams.
///
/// Threads: safe from any. The launches of a device are made in one order (ORD-3), on its launcher's thread.
class kernel_order {
public:
  /// The stream of a communicator. The communicator and the order share it.
  class line {
  public:
    explicit line(std::shared_ptr<device> where) noexcept : where_{std::move(where)} {}

    /// Nobody waits for its kernels any more, because they end by themselves: the communicator has failed. Threads:
    /// any. Never blocks.
    void end() noexcept { is_over_ = true; }

  private:
    friend class kernel_order;

    std::shared_ptr<device> where_;
    std::atomic<native_stream> stream_ = nullptr; ///< Null: not attached, or forgotten.
    std::optional<event> behind_{};               ///< Made by attach().
    std::atomic<bool> has_unrecorded_ = false;    ///< One-shot kernels follow behind the event.
    std::uint64_t latest_ = 0;                    ///< The number of the event's latest record. 0: none.
    std::uint64_t awaited_ = 0;                   ///< The stream waits for all records up to this number.
    std::atomic<bool> is_over_ = false;
  };

  /// Returns the order of \p where, which all users in the process share.
  [[nodiscard]] static std::shared_ptr<kernel_order> of(device& where);
  /// The same, but null if nobody uses it.
  [[nodiscard]] static std::shared_ptr<kernel_order> find_of(device& where);
  /// Forgets \p gone, a stream that is about to be destroyed.
  static void forget(stream_ref gone) noexcept;

  /// The communicator of \p one launches in \p stream from now on. forget() must be called before the stream is
  /// destroyed, or end() before the next launch on the device.
  void attach(const std::shared_ptr<line>& one, stream_ref stream);

  /// Notes that one-shot kernels of \p one have been enqueued in \p stream. Has no effect for a stream in capture that
  /// is not the line's own. Calls no driver.
  static void note_one_shot(line& one, stream_ref stream) noexcept {
    if (one.stream_ == stream.native()) one.has_unrecorded_ = true;
  }
  /// The same for all lines in \p stream: a graph that has one-shot kernels has been launched there.
  void note_replay(stream_ref stream);

  /// Makes later work in \p stream wait until all one-shot kernels noted so far have ended. Call it before kernels of
  /// the library are enqueued there, or a graph that has some. Has no effect while the stream is in capture. Errors:
  /// those of the driver.
  void before_library(stream_ref stream);

private:
  [[nodiscard]] line* find(stream_ref stream) const;

  std::mutex mutex_;
  std::vector<std::shared_ptr<line>> lines_;
  std::uint64_t records_ = 0; ///< Of all events.
};

} // namespace troupe
