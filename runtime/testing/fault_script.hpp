/// A script of faults for tests: which rank's which operation, forming or abort goes wrong, and how.
#pragma once

#include <troupe/collectives/backend/faults/fault_injector.hpp>
#include <troupe/collectives/pipeline/launch_observer.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/testing/launch_record.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::testing {

/// Lines say where a fault comes and what it is: `script.on(rank{2}).operation(5).hang()`.
///
/// Counting: a rank's operations are counted in each epoch from 0, in the order of its launches: requests to its
/// communicator, so neither copies nor replays of captured plans (what these hold counts when it is captured); a group
/// is one, each chunk of staged host memory is one, and operations of sub-worlds count with their parent's. A world's
/// formings are counted from 0: the k-th makes epoch k + 1. Several worlds of one runtime are counted together. A line
/// happens once, the first time that its place is reached; several lines may have one place. What is launched by one
/// call shares its fate: a fault at any of it is one of all.
///
/// Where: the mock and, but for memory and devices, NCCL. Worlds of one rank have no communicator: nothing happens.
/// Lifetime: a world that uses it holds it.
/// Threads: safe from any, also while worlds run.
class fault_script final : public fault_injector, private launch_observer {
public:
  class operation_line;
  class forming_line;
  class registering_line;
  class abort_line;
  class rank_lines;

  /// Errors: invalid_argument (a rank below 0).
  [[nodiscard]] rank_lines on(rank whom);

  /// What \p whom launched, or tried to, in its order, and for whom.
  [[nodiscard]] std::vector<launch_record> launches(rank whom) const;
  /// Lines that have not happened, in words: most tests want none in the end.
  [[nodiscard]] std::vector<std::string> waiting() const;
  /// What hangs or is delayed goes on, and lines that have not happened never will. Worlds call it before they end.
  void release();
  /// For worlds: the devices that faults of memory and devices are for, from now on; rank r has the r-th. null: none.
  void attach(mock_driver* devices);

  void before_init(const fault_place& who) override;
  [[nodiscard]] bool before_launch(const fault_place& who, std::span<const operation* const> all) override;
  void before_register(const fault_place& who, const registered_region& region) override;
  void before_check(const fault_place& who) override;
  void before_abort(const fault_place& who) override;
  [[nodiscard]] launch_observer* observer() noexcept override { return this; }

private:
  class scripted_place;
  enum class occasion : std::uint8_t { operation, forming, registering, abort };
  enum class deed : std::uint8_t { fail, fail_later, hang, delay, lose_device };
  struct line {
    occasion when{};
    rank whom{};
    std::uint64_t number = 0;
    std::optional<std::uint64_t> formation{}; ///< Any.
    deed what{};
    errc code{};
    nanoseconds span{};
    bool happened = false;
  };
  using place = std::pair<std::uint64_t, rank>; ///< A formation's rank.
  struct progress {
    std::uint64_t operations = 0;
    std::uint64_t calls = 0;
    std::uint64_t registrations = 0;
    bool gone = false; ///< It comes to its peers no more.
    bool aborted = false;
    std::optional<error> found_later{}; ///< By the next check.
  };

  /// A request that is about to be launched.
  struct coming {
    const operation* what;
    launch_asker by;
  };

  void about_to_launch(const launch_notice& next) noexcept override;
  /// For whom \p what is launched on \p where.
  [[nodiscard]] std::optional<launch_asker> asker_of(device_id where, const operation* what) const;

  void add(line one);
  void add_device_fault(rank whom, std::function<void(mock_driver&, device_id)> what);
  /// Those that happen now.
  [[nodiscard]] std::vector<line> take(occasion when, const fault_place& who, std::uint64_t first, std::uint64_t count);
  /// As long as \p now says in all.
  void wait(std::unique_lock<std::mutex>& lock, const std::vector<line>& now);
  [[nodiscard]] static place place_of(const fault_place& who) noexcept { return {who.formation, who.rank}; }
  [[nodiscard]] static std::string text_of(const line& one);

  mutable std::mutex guard_;
  condition changed_;
  std::vector<line> lines_;
  std::vector<std::pair<rank, std::function<void(mock_driver&, device_id)>>> device_faults_; ///< Until there are some.
  mock_driver* devices_ = nullptr;
  std::map<place, progress> progress_;
  std::map<rank, std::vector<launch_record>> launches_;
  std::map<device_id, std::vector<coming>> coming_; ///< Of the launch that each device's launcher is at.
  std::uint64_t releases_ = 0;
};

/// Where a line's fault comes.
class fault_script::scripted_place {
protected:
  scripted_place(fault_script& of, line start) : of_{of}, start_{start} {}
  void add(deed what, errc code, nanoseconds span = {}) const;

private:
  fault_script& of_;
  line start_;
};

/// One operation of a rank.
class fault_script::operation_line : scripted_place {
public:
  /// Its launch fails, and with it the epoch: peers may have launched theirs. Errors: invalid_argument (errc::none).
  void fail(errc code = errc::communicator_failed) const;
  /// It is launched; then the communicator reports an error, as NCCL does of what goes wrong by itself. That is looked
  /// for while requests are in flight, each limits.check_interval.
  void fail_later(errc code = errc::communicator_failed) const;
  /// The rank comes to its peers no more, from this operation to the end of the epoch: they hang on their devices.
  void hang() const;
  /// Its launch call takes so much longer. Errors: invalid_argument (below 0).
  void delay(nanoseconds span) const;
  /// Its device fails at this operation, or at what is queued before it: all of its queues is lost. device_failed is
  /// forgotten once it has been reported; process_poisoned is sticky, and takes all devices.
  /// Errors: invalid_argument (another code).
  void lose_device(errc code = errc::device_failed) const;

private:
  friend class fault_script;
  using scripted_place::scripted_place;
};

/// One forming of a rank's communicator.
class fault_script::forming_line : scripted_place {
public:
  /// It fails with \p code.
  void fail(errc code = errc::communicator_failed) const;
  /// It does not return before the communicator is aborted.
  void hang() const;
  /// It takes \p span longer.
  void delay(nanoseconds span) const;

private:
  friend class fault_script;
  using scripted_place::scripted_place;
};

/// One registration of memory by a rank, in an epoch: as asked for, or again in a new one.
class fault_script::registering_line : scripted_place {
public:
  /// So does the world's forming, or the epoch in which it was asked for.
  void fail(errc code = errc::communicator_failed) const;
  /// It takes \p span longer.
  void delay(nanoseconds span) const;

private:
  friend class fault_script;
  using scripted_place::scripted_place;
};

/// The abort of a rank's communicator.
class fault_script::abort_line : scripted_place {
public:
  /// It takes \p span longer.
  void delay(nanoseconds span) const;

private:
  friend class fault_script;
  using scripted_place::scripted_place;
};

/// Where the lines of one rank begin: a place, then a fault.
class fault_script::rank_lines {
public:
  /// Only operations and registrations of \p one; else those of any epoch, whichever comes first.
  [[nodiscard]] rank_lines in(epoch one) const;
  /// The \p number th, from 0.
  [[nodiscard]] operation_line operation(std::uint64_t number) const;
  /// The \p number th of the world, from 0.
  [[nodiscard]] forming_line forming(std::uint64_t number) const;
  /// The \p number th of each epoch, from 0: those of worlds that are formed anew come first.
  [[nodiscard]] registering_line registering(std::uint64_t number) const;
  /// Of what the \p number th forming made.
  [[nodiscard]] abort_line aborting(std::uint64_t number) const;
  /// Its device has \p size_bytes left: from now on, or, before there is a world, from when it is ready.
  void out_of_memory_after(std::size_t size_bytes) const;
  /// The next work of its device fails: see operation_line::lose_device().
  void lose_device(errc code = errc::device_failed) const;

private:
  friend class fault_script;
  rank_lines(fault_script& of, rank whom) : of_{of}, whom_{whom} {}

  fault_script& of_;
  rank whom_;
  std::optional<std::uint64_t> formation_{};
};

} // namespace troupe::testing
