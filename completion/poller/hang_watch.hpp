/// Which of several worlds on the same devices is the one that hangs, and which ones only wait behind it.
#pragma once

#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// On a device, work begins in the order of its launches, also that of different worlds: what is launched behind an
/// operation that hangs does not end either, and its peers on other devices wait with it, until the hanging one has
/// been aborted. So only who waits behind nobody is judged. Of worlds over processes it knows this process's part.
/// Threads: join() by any; the rest, places too, by the poller.
class hang_watch {
public:
  /// A world in one of its epochs: the next one may be formed before what hangs is aborted.
  struct owner {
    std::uint64_t world = 0;
    epoch formed_in{};

    friend bool operator==(const owner&, const owner&) = default;
  };

  /// Where one works on one device.
  class place {
  public:
    place(owner whose, device_id where) noexcept : whose_{whose}, where_{where} {}

    /// What was launched at \p launch_began has the head of the stream, and does not end.
    void runs(time_point launch_began) noexcept { running_ = launch_began; }
    [[nodiscard]] bool is_running() const noexcept { return running_ != time_point{}; }
    /// It has failed at \p now, and holds others up until it is aborted: until ends().
    void fails(time_point now) noexcept {
      if (failed_ == time_point{}) failed_ = now;
    }
    void ends() noexcept { running_ = failed_ = time_point{}; }

  private:
    friend class hang_watch;
    owner whose_;
    device_id where_;
    time_point running_{};
    time_point failed_{};
  };

  /// \p abort: how long what has failed is waited for; then others are judged, whether it has been aborted or not.
  explicit hang_watch(nanoseconds abort) : abort_{abort} {}

  /// A place on \p where, as long as that lives.
  [[nodiscard]] std::shared_ptr<place> join(owner whose, device_id where);
  /// Whether the owner of \p who waits, on any of its devices, behind another one that does not end.
  [[nodiscard]] bool is_behind(const place& who, time_point now) const;

private:
  nanoseconds abort_;
  mutable std::mutex guard_;
  std::vector<std::weak_ptr<place>> places_;
};

} // namespace troupe
