/// One fault in a world under traffic, and what came of it.
#pragma once

#include <troupe/program/support/fault_kinds.hpp>
#include <troupe/program/support/fault_traffic.hpp>
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

/// Listens for as long as the world lives. Threads: safe from any.
class event_history {
public:
  explicit event_history(world& where) {
    where.on_event([into = events_](const world_event& event) { into->add(event); });
  }

  /// Forgets what was.
  void clear() { events_->clear(); }
  [[nodiscard]] std::vector<logged_event> all() const;
  /// The first event that \p wanted says yes to, now or within \p at_most.
  [[nodiscard]] std::optional<logged_event> await(const std::function<bool(const world_event&)>& wanted,
                                                  nanoseconds at_most) const;

private:
  struct record {
    void add(const world_event& event);
    void clear();

    std::mutex guard;
    std::condition_variable changed;
    std::vector<logged_event> all;
  };
  std::shared_ptr<record> events_ = std::make_shared<record>();
};

struct fault_patience {
  nanoseconds watch{2'000'000'000};    ///< How long requests are looked at after the world is back.
  nanoseconds at_most{30'000'000'000}; ///< For each step of a recovery; what takes longer hangs.
};

/// None where something did not happen.
struct played_fault {
  std::optional<time_point> raised{};
  /// The first reply with a failure, or the world's word that it is being rebuilt; where the world stays ready, the
  /// refusal.
  std::optional<time_point> detected{};
  std::optional<time_point> ready{};      ///< In the last epoch before the first good reply.
  std::optional<time_point> first_good{}; ///< Reply, in an epoch after the fault's.
  std::optional<time_point> aborted{};    ///< The last of the failed communicators.
  std::optional<time_point> answered{};   ///< Where the world has ended: the last that was pending then.
  std::vector<double> watched_ms{};       ///< From asking to reply, of those asked for while they were watched.
  std::size_t failed_while_watched = 0;   ///< Of the same.
  std::vector<logged_event> events{};     ///< Since the fault.
  /// What came back with the world beside its ranks, as told last; null where there is nothing such.
  std::shared_ptr<const restoration> restored{};
  error reason{};         ///< What the world, else the first client, was told.
  std::size_t unkept = 0; ///< Replies too many to be looked at.
  bool recovered = false;
  bool hung = false;        ///< A step took longer than it may.
  bool as_expected = false; ///< What came of it is what its kind leads to.
};

/// Returns when the world serves again, has been watched, and its failed communicators are aborted; or when it has
/// ended. \p traffic and \p log are of the scene's world.
[[nodiscard]] played_fault play_fault(const fault_kind& kind, const fault_scene& scene, fault_traffic& traffic,
                                      event_history& log, const fault_patience& patience);

} // namespace troupe::program
