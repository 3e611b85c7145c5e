/// A fault injector that makes a chosen call of a rank fail once.
#pragma once

#include <troupe/collectives/backend/faults/fault_injector.hpp>
#include <troupe/device/time.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <future>
#include <mutex>
#include <optional>
#include <vector>

namespace troupe {

/// Selects which call of a rank's communicator fails, and how.
enum class armed_call : std::uint8_t {
  /// From this launch on the rank's launches never reach its peers, until its communicator is aborted.
  withheld_launch,
  refused_launch, ///< The launch throws communicator_failed.
  failed_check,   ///< The check throws communicator_failed, like an asynchronous error.
  failed_init,    ///< init() throws communicator_failed.
  hung_init,      ///< init() does not return until the rank's communicator is aborted.
  slow_abort,     ///< abort() starts after a delay.
};

/// A call of abort() that has returned, and the time of its return.
struct ended_abort {
  fault_place who;
  time_point at;
};

/// Makes calls of ranks fail, once for each arm(). While no fault is armed, it adds one atomic load to a launch.
/// Threads: safe from any.
class armed_faults final : public fault_injector {
public:
  /// Makes the next call of kind \p what by rank \p target fail, once. The future returns the time of the failure.
  /// \p span: the delay of a slow_abort.
  [[nodiscard]] std::future<time_point> arm(armed_call what, rank target, nanoseconds span = nanoseconds{0});
  /// Disarms all faults, which breaks the promises of their futures, and ends calls that hang. Must be called before
  /// the injector's owner is destroyed.
  void release();
  /// Returns the aborts that ended since the last call, in the order of their ends.
  [[nodiscard]] std::vector<ended_abort> take_ended_aborts();

  void before_init(const fault_place& who) override;
  [[nodiscard]] bool before_launch(const fault_place& who, std::span<const operation* const> all) override;
  void before_check(const fault_place& who) override;
  void before_abort(const fault_place& who) override;
  void after_abort(const fault_place& who) override;

private:
  struct armed_one {
    armed_call what;
    rank target;
    nanoseconds span;
    std::promise<time_point> happened;
  };
  [[nodiscard]] std::optional<armed_one> take(armed_call what, rank target);
  void count() noexcept { busy_ = armed_.size() + withheld_.size(); }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<armed_one> armed_;
  std::vector<fault_place> withheld_; ///< Ranks whose launches are withheld.
  std::vector<fault_place> hanging_;  ///< Ranks whose init() hangs.
  std::vector<ended_abort> ended_;
  std::uint64_t releases_ = 0;
  std::atomic<std::size_t> busy_{0}; ///< Number of armed faults and of ranks in withheld_.
};

} // namespace troupe
