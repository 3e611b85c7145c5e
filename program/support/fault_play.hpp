/// Raises one fault in a world under traffic and records what happens. Also defines the settings of such a world.
#pragma once

#include <troupe/program/support/fault_kinds.hpp>
#include <troupe/program/support/fault_traffic.hpp>
#include <troupe/program/support/runtime_options.hpp>

#include <troupe/runtime/world.hpp>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace troupe::program {

struct logged_event {
  time_point at;
  world_event event;
};

/// Records events for as long as the world lives. Threads: safe from any.
class event_history {
public:
  explicit event_history(world& where) {
    where.on_event([into = events_](const world_event& event) { into->add(event); });
  }

  /// Discards all events so far.
  void clear() { events_->clear(); }
  [[nodiscard]] std::vector<logged_event> all() const;
  /// Returns the first event for which \p wanted returns true. Waits for it up to \p at_most.
  [[nodiscard]] std::optional<logged_event> await(const std::function<bool(const world_event&)>& wanted,
                                                  nanoseconds at_most) const;

private:
  struct record {
    void add(const world_event& event);
    void clear();

    std::mutex mutex;
    std::condition_variable changed;
    std::vector<logged_event> all;
  };
  std::shared_ptr<record> events_ = std::make_shared<record>();
};

struct fault_patience {
  nanoseconds watch{2'000'000'000};    ///< How long requests are observed after the world is ready again.
  nanoseconds at_most{30'000'000'000}; ///< Limit of each step of a recovery; a longer step counts as hung.
};

/// The record of one fault. A time is empty if its event did not happen.
struct played_fault {
  std::optional<time_point> raised{};
  /// When the first reply with a failure arrived, or the world reported that it is being rebuilt. If the world stays
  /// ready: when the request was refused.
  std::optional<time_point> detected{};
  std::optional<time_point> ready{};      ///< When the epoch of the first good reply became ready.
  std::optional<time_point> first_good{}; ///< The first success in an epoch after that of the fault.
  std::optional<time_point> aborted{};    ///< When the last failed communicator was aborted.
  std::optional<time_point> answered{};   ///< When the last pending request was answered, if the world ended.
  std::vector<double> watched_ms{};       ///< The times from request to reply while requests were observed.
  std::size_t failed_while_watched = 0;   ///< Failures among these requests.
  std::vector<logged_event> events{};     ///< The events since the fault.
  /// The resources restored with the world, from its last report; null if there was nothing to restore.
  std::shared_ptr<const restoration> restored{};
  error reason{};         ///< The reason that the world reported, otherwise the one that the first client received.
  std::size_t unkept = 0; ///< Replies that were not kept because there were too many.
  bool recovered = false;
  bool hung = false;        ///< True if a step took longer than its limit.
  bool as_expected = false; ///< True if the outcome is the one that the kind of fault leads to.
};

/// Raises a fault of \p kind. Returns when the world serves again, has been observed, and its failed communicators are
/// aborted; or when the world has ended. \p traffic and \p log belong to the scene's world.
[[nodiscard]] played_fault play_fault(const fault_kind& kind, const fault_scene& scene, fault_traffic& traffic,
                                      event_history& log, const fault_patience& patience);

/// Returns settings with the policy keep_size and an unlimited restart budget. An operation counts as hung after 100 ms
/// (\p hangs_soon), forming after 3 s. Errors: invalid_argument (a policy under which no world comes back).
[[nodiscard]] configuration fault_settings(const gathered_settings& asked, std::shared_ptr<fault_injector> faults,
                                           bool hangs_soon = true);

/// Checks that \p where has communicators, in which faults can be raised. Errors: invalid_argument, if it has one rank.
void require_peers(const world& where);

/// Runs the operations of fault_traffic once in a separate world with long deadlines. The first launch of an NCCL
/// kernel loads it, which may take longer than the deadline of an operation in the world under test.
void load_kernels(const gathered_settings& asked);

} // namespace troupe::program
