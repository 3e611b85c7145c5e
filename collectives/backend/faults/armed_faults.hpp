/// A fault injector that is told which call goes wrong next.
#pragma once

#include <troupe/collectives/backend/faults/fault_injector.hpp>
#include <troupe/completion/poller/clock.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <future>
#include <mutex>
#include <optional>
#include <vector>

namespace troupe {

/// Which call of a rank's communicator goes wrong, and how.
enum class armed_call : std::uint8_t {
  withheld_launch, ///< From this launch on the rank comes to its peers no more, until its communicator is aborted.
  refused_launch,  ///< The launch throws communicator_failed.
  failed_check,    ///< An error is found that has come asynchronously.
  failed_init,     ///< The forming throws communicator_failed.
  hung_init,       ///< The forming does not return before the rank's communicator is aborted.
  slow_abort,      ///< The abort takes longer.
};

/// An abort that has returned.
struct ended_abort {
  fault_place who;
  time_point at;
};

/// Costs a launch one atomic load while nothing is armed. Threads: safe from any.
class armed_faults final : public fault_injector {
public:
  /// The next such call of \p whom goes wrong, once; the future tells when it did. \p span: how long an abort takes
  /// before it begins.
  [[nodiscard]] std::future<time_point> arm(armed_call what, rank whom, nanoseconds span = nanoseconds{0});
  /// Nothing is armed any more, whose futures are broken promises, and what hangs ends. To be called before the
  /// injector's owner goes.
  void release();
  /// Those since the last call, in the order of their ends.
  [[nodiscard]] std::vector<ended_abort> take_ended_aborts();

  void before_init(const fault_place& who) override;
  [[nodiscard]] bool before_launch(const fault_place& who, std::span<const operation* const> all) override;
  void before_check(const fault_place& who) override;
  void before_abort(const fault_place& who) override;
  void after_abort(const fault_place& who) override;

private:
  struct armed_one {
    armed_call what;
    rank whom;
    nanoseconds span;
    std::promise<time_point> happened;
  };
  [[nodiscard]] std::optional<armed_one> take(armed_call what, rank whom);
  void count() noexcept { busy_ = armed_.size() + gone_.size(); }

  std::mutex guard_;
  std::condition_variable changed_;
  std::vector<armed_one> armed_;
  std::vector<fault_place> gone_;    ///< Those who come no more.
  std::vector<fault_place> hanging_; ///< In their init().
  std::vector<ended_abort> ended_;
  std::uint64_t releases_ = 0;
  std::atomic<std::size_t> busy_{0}; ///< Armed and gone.
};

} // namespace troupe
