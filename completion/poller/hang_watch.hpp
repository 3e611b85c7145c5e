/// Finds out which of several worlds on the same devices hangs, and which ones only wait behind it.
#pragma once

#include <troupe/device/identity.hpp>
#include <troupe/device/threads/running_clock.hpp>
#include <troupe/device/time.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// On a device, work begins in the order of its launches, also across worlds. An operation launched behind a hanging
/// one does not end either, and its peers on other devices wait with it, until the hanging one has been aborted.
/// Therefore only an owner that waits behind no other is judged to hang. For a world over several processes, only the
/// part in this process is known.
/// Threads: join() may be called from any thread; all other functions, including those of places, only by the poller.
class hang_watch {
public:
  /// A world in one of its epochs. The next epoch may be formed before the hanging operations of this one are aborted.
  struct owner {
    std::uint64_t world = 0;
    epoch formed_in{};

    friend bool operator==(const owner&, const owner&) = default;
  };

  /// The state of one owner on one device.
  class place {
  public:
    place(owner whose, device_id where) noexcept : whose_{whose}, where_{where} {}

    /// Records that the operation launched at \p launch_began is at the head of the stream and has not ended.
    void runs(time_point launch_began) noexcept { running_ = launch_began; }
    [[nodiscard]] bool is_running() const noexcept { return running_ != time_point{}; }
    /// Records that the owner failed at \p now. It still blocks others until it is aborted, that is, until ends().
    void fails(running_time now) noexcept {
      if (failed_ == running_time{}) failed_ = now;
    }
    void ends() noexcept {
      running_ = {};
      failed_ = {};
    }

  private:
    friend class hang_watch;
    owner whose_;
    device_id where_;
    time_point running_{};
    running_time failed_{};
  };

  /// \p abort is how long others wait for a failed owner to be aborted. After that they are judged even if it has not
  /// been aborted.
  explicit hang_watch(nanoseconds abort) : abort_{abort} {}

  /// Returns a place of \p whose on \p where. The place counts as long as the result lives.
  [[nodiscard]] std::shared_ptr<place> join(owner whose, device_id where);
  /// Returns whether the owner of \p who waits, on any of its devices, behind another owner's operation that does not
  /// end.
  [[nodiscard]] bool is_behind(const place& who, running_time now) const;

private:
  nanoseconds abort_;
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<place>> places_;
};

} // namespace troupe
