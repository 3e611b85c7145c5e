/// A script of faults, for tests and demonstrations: which operation, forming or abort of which rank fails, and how.
/// Also what was launched.
#pragma once

#include <troupe/collectives/backend/faults/fault_injector.hpp>
#include <troupe/collectives/backend/launch_observer.hpp>
#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/enum_names.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {
class condition;
class mock_driver;
} // namespace troupe

namespace troupe::testing {

using troupe::to_string;

/// The result of a launch.
enum class launch_fate : std::uint8_t {
  launched, ///< The launch reached the device.
  withheld, ///< The script withheld the launch: nothing reached the device.
  refused,  ///< The script made the launch fail.
};

/// The request that an operation was launched for.
struct launch_asker {
  ticket request;             ///< The ticket of the request, as in its completion.
  bool of_world = false;      ///< Whether the request is to all ranks. Such a request has no lane.
  lane in{};                  ///< The lane of a request to a rank.
  std::uint64_t position = 0; ///< The index among the rank's requests in that lane, from 0.
  /// The client: its caf::actor::id() or rank_lane::client(); 1 in virtual worlds; 0 for a thread.
  std::uint64_t client = 0;
  troupe::rank rank{};   ///< The rank that received the request. For a sub-world, its own rank.
  troupe::epoch epoch{}; ///< The epoch of the request. For a sub-world, its own epoch.
};

/// One operation that a rank's launcher passed to its communicator.
struct launch_record {
  troupe::rank rank{};
  /// The world's epoch: forming k is epoch k + 1. Sub-worlds have the epoch of their parent.
  troupe::epoch epoch{};
  std::uint64_t number = 0; ///< Index among the rank's operations in the epoch, from 0. A group is one.
  /// Index of the rank's launch call in the epoch, from 0. Operations launched together share it.
  std::uint64_t call = 0;
  std::string_view operation{}; ///< The name of the operation, from name_of(): "all_reduce".
  /// The number of elements; for a group, the number of its parts; 0 for operations without elements.
  std::size_t count = 0;
  std::string text{}; ///< The operation as text, from describe().
  /// The start of the memory that the operation reads; for a group, that of its first part. Null: it reads nothing.
  const void* send = nullptr;
  const void* recv = nullptr; ///< The start of the memory that it writes, likewise.
  launch_fate fate = launch_fate::launched;
  time_point at{};
  std::optional<launch_asker> by{}; ///< Empty: the launch is for a plan that is being captured.
};

/// Returns text of the form "all_reduce of 64 f32, sum; in lane default (request 3), by client 17; epoch 1, withheld".
[[nodiscard]] std::string describe(const launch_record& one);

/// Returns the record of the operation \p what. The rank, the request, the numbers and the time are not filled in.
[[nodiscard]] launch_record record_of(const operation& what);

/// Returns the operations' names in order: {"all_reduce", "barrier"}.
[[nodiscard]] std::vector<std::string_view> names_of(const std::vector<launch_record>& all);

/// An abort() that has returned, and the time of its return.
struct ended_abort {
  fault_place who;
  time_point at;
};

/// Whether a script keeps records of launches.
enum class launch_recording : std::uint8_t {
  on,
  off, ///< For long runs: launches() returns nothing.
};

/// A list of lines. Each line specifies where a fault happens, and which one: `script.on(rank{2}).operation(5).hang()`,
/// or `script.on(rank{2}).next_operation().hang()` in a world that runs already. A line is complete, and counts, when
/// its fault is chosen. Functions that choose it return a future: the time at which the fault happens, or a broken
/// promise if the line is removed before.
///
/// Counting: a rank's operations are counted in each epoch from 0, in the order of its launches. Only requests to its
/// communicator count: copies and replays of captured plans do not (the operations of a plan count when it is
/// captured). A group counts as one, each chunk of staged host memory counts as one, and operations of sub-worlds count
/// with those of their parent. A world's formings are counted from 0: forming k makes epoch k + 1. Several worlds of
/// one runtime are counted together. A line happens once, the first time that its place is reached. Several lines may
/// have the same place. Operations of one launch call share its result: a fault of one of them is a fault of all.
///
/// Backends: the mock, and, except for memory and device faults, NCCL. A world of one rank has no communicator: no line
/// happens.
/// Lifetime: a world holds the script that it uses.
/// Threads: safe from any, also while worlds run.
class fault_script final : public fault_injector, private launch_observer {
public:
  /// Makes a script without lines.
  explicit fault_script(launch_recording recording = launch_recording::on);
  ~fault_script() override;

  /// The places of lines. Which faults are possible depends on the place.
  enum class trigger : std::uint8_t { operation, forming, registering, check, abort };
  template <trigger When>
  class line_at;
  using operation_line = line_at<trigger::operation>;
  using forming_line = line_at<trigger::forming>;
  using registering_line = line_at<trigger::registering>;
  using check_line = line_at<trigger::check>;
  using abort_line = line_at<trigger::abort>;
  class rank_lines;

  /// Begins a line for rank \p target. Errors: invalid_argument (a rank below 0).
  [[nodiscard]] rank_lines on(rank target);

  /// Returns the launches of \p target in order, including failed ones, with the requests that they were for.
  [[nodiscard]] std::vector<launch_record> launches(rank target) const;
  /// Describes the lines that have not happened. Most tests expect none at the end.
  [[nodiscard]] std::vector<std::string> waiting() const;
  /// Returns the aborts that have ended since the last call, in the order of their ends.
  [[nodiscard]] std::vector<ended_abort> take_ended_aborts();
  /// Lets hanging and delayed operations continue, and removes the lines that have not happened. Worlds call it before
  /// they end.
  void release();
  /// Called by worlds. Sets the devices for memory and device faults from now on; rank r has device r. Null: none.
  void attach(mock_driver* devices);

  void before_init(const fault_place& who) override;
  [[nodiscard]] bool before_launch(const fault_place& who, std::span<const operation* const> all) override;
  void before_register(const fault_place& who, const registered_region& region) override;
  void before_check(const fault_place& who) override;
  void before_abort(const fault_place& who) override;
  void after_abort(const fault_place& who) override;
  [[nodiscard]] launch_observer* observer() noexcept override {
    return recording_ == launch_recording::on ? this : nullptr;
  }

private:
  enum class fault_action : std::uint8_t { fail, fail_later, hang, delay, lose_device };
  struct line {
    trigger when{};
    rank target{};
    std::optional<std::uint64_t> number{};    ///< Empty: the next.
    std::string operation{};                  ///< Name of the operation; empty: any.
    std::optional<std::uint64_t> formation{}; ///< Empty: any formation.
    fault_action what{};
    errc code{};
    nanoseconds span{};
    std::shared_ptr<std::promise<time_point>> time{};
    bool happened = false;
  };
  using operations = std::span<const operation* const>;
  using place = std::pair<std::uint64_t, rank>; ///< A formation and a rank in it.
  struct progress {
    std::uint64_t operations = 0;
    std::uint64_t calls = 0;
    std::uint64_t registrations = 0;
    std::vector<std::string> withheld{}; ///< Names of the operations that no longer reach the peers; empty: all.
    bool aborted = false;
    std::optional<error> found_later{}; ///< Reported by the next check.
  };

  /// A request that is about to be launched.
  struct imminent_launch {
    const operation* what = nullptr;
    launch_asker by;
  };

  void about_to_launch(const launch_notice& next) noexcept override;
  /// Returns the request for which \p what is launched on \p where.
  [[nodiscard]] std::optional<launch_asker> asker_of(device_id where, const operation* what) const;

  /// Adds \p one with a fault, and returns when it happens. Errors: invalid_argument (a code or a span that the fault
  /// cannot have).
  std::future<time_point> add(line one, fault_action what, errc code = errc::none, nanoseconds span = {});
  void add_device_fault(rank target, std::function<void(mock_driver&, device_id)> what);
  /// Returns the lines that happen now, and marks them.
  [[nodiscard]] std::vector<line> take(trigger when, const fault_place& who, std::uint64_t number, operations all = {});
  /// Waits as long as the lines of \p now require in total.
  void wait(std::unique_lock<std::mutex>& lock, const std::vector<line>& now);
  [[nodiscard]] static place place_of(const fault_place& who) noexcept { return {who.formation, who.rank}; }
  [[nodiscard]] static std::string text_of(const line& one);

  /// Whether one of \p all has the name \p name, or \p name is empty.
  [[nodiscard]] static bool is_any(const std::string& name, operations all);

  const launch_recording recording_;
  mutable std::mutex mutex_;
  std::unique_ptr<condition> changed_;
  std::vector<line> lines_;
  /// Device faults that wait for attach().
  std::vector<std::pair<rank, std::function<void(mock_driver&, device_id)>>> device_faults_;
  mock_driver* devices_ = nullptr;
  std::map<place, progress> progress_;
  std::map<rank, std::vector<launch_record>> launches_;
  std::map<device_id, std::vector<imminent_launch>> imminent_; ///< The current launch of each device's launcher.
  std::vector<ended_abort> ended_;
  std::uint64_t releases_ = 0;
};

/// A line with a place; its member functions choose the fault. Which faults are possible depends on the place: an
/// operation of a rank, a forming of its communicator, a registration of memory by it (a new one, or one that is
/// repeated in a new epoch), the check of its communicator for errors, or its abort.
template <fault_script::trigger When>
class fault_script::line_at {
public:
  // The fault happens whether its time is asked for or not.
  // NOLINTBEGIN(modernize-use-nodiscard)
  /// Makes the call fail with \p code. A launch fails its epoch, because peers may have launched theirs. A registration
  /// fails the epoch in which it was requested, or the forming that repeats it. Errors: invalid_argument (errc::none).
  std::future<time_point> fail(errc code = errc::communicator_failed) const requires(When != trigger::abort) {
    return of_.add(start_, fault_action::fail, code);
  }
  /// Lets it launch; the communicator then reports an error, as NCCL does for asynchronous errors. The error is noticed
  /// while requests are in flight, every limits.check_interval.
  std::future<time_point> fail_later(errc code = errc::communicator_failed) const requires(When == trigger::operation) {
    return of_.add(start_, fault_action::fail_later, code);
  }
  /// Stops the rank from reaching its peers from this operation to the end of the epoch, with operations of the name
  /// that the place has, or with all: the peers hang on their devices. A forming hangs until the communicator is
  /// aborted.
  std::future<time_point> hang() const requires(When == trigger::operation || When == trigger::forming) {
    return of_.add(start_, fault_action::hang);
  }
  /// Delays the call by \p span. Errors: invalid_argument (below 0).
  std::future<time_point> delay(nanoseconds span) const requires(When != trigger::check) {
    return of_.add(start_, fault_action::delay, errc::none, span);
  }
  /// Makes its device fail at this operation, or at an operation that is queued before it: everything in the device's
  /// queues is lost. device_failed is cleared once it has been reported; process_poisoned is sticky and affects all
  /// devices. Errors: invalid_argument (another code).
  std::future<time_point> lose_device(errc code = errc::device_failed) const requires(When == trigger::operation) {
    return of_.add(start_, fault_action::lose_device, code);
  }
  // NOLINTEND(modernize-use-nodiscard)

private:
  friend class fault_script;
  line_at(fault_script& of, line start) : of_{of}, start_{std::move(start)} { start_.when = When; }

  fault_script& of_;
  line start_;
};

/// Begins the lines of one rank: a place, followed by a fault.
class fault_script::rank_lines {
public:
  /// Restricts operations and registrations to epoch \p one. Otherwise the first epoch that reaches the place counts.
  [[nodiscard]] rank_lines in(epoch one) const;
  /// Selects operation \p number of the rank, counted from 0.
  [[nodiscard]] operation_line operation(std::uint64_t number) const;
  /// Selects forming \p number of the world, counted from 0. In a process that stands by, rank 0 forms a communicator
  /// once in advance, which counts.
  [[nodiscard]] forming_line forming(std::uint64_t number) const;
  /// Selects registration \p number of each epoch, counted from 0. Repeated registrations of earlier epochs come first.
  [[nodiscard]] registering_line registering(std::uint64_t number) const;
  /// Selects the abort of the communicator that forming \p number created.
  [[nodiscard]] abort_line aborting(std::uint64_t number) const;
  /// Selects the next operation that the rank launches; with \p name, the next of that name (name_of(): "broadcast").
  [[nodiscard]] operation_line next_operation(std::string_view name = {}) const;
  /// Selects the next forming in which the rank takes part.
  [[nodiscard]] forming_line next_forming() const;
  /// Selects the next check of the rank's communicator for asynchronous errors. It is checked while requests are in
  /// flight, every limits.check_interval.
  [[nodiscard]] check_line next_check() const;
  /// Selects the next abort of a communicator of the rank.
  [[nodiscard]] abort_line next_abort() const;
  /// Limits the free memory of the rank's device to \p size_bytes: from now on, or, if there is no world yet, from when
  /// it is ready.
  void out_of_memory_after(std::size_t size_bytes) const;
  /// Makes the next work of the rank's device fail: see operation_line::lose_device().
  void lose_device(errc code = errc::device_failed) const;

private:
  friend class fault_script;
  rank_lines(fault_script& of, rank target) : of_{of}, target_{target} {}

  fault_script& of_;
  rank target_;
  std::optional<std::uint64_t> formation_{};
};

} // namespace troupe::testing
