/// Makes the requests of a simulated run, and injects the faults outside the communicators.
#pragma once

#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/testing/simulation/simulated_faults.hpp>
#include <troupe/testing/simulation/simulated_memory.hpp>
#include <troupe/testing/simulation/simulated_world.hpp>
#include <troupe/testing/simulation/simulation_ledger.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// The clients of a simulated run. Each client is a fiber. Threads: only that of the run.
class simulated_deployment {
public:
  /// Whether clients also make requests to ranks while the world is not ready. The ranks must then refuse them.
  enum class submit_policy : std::uint8_t { waits_for_ready, asks_any_time };

  simulated_deployment(const scenario& of, simulated_machine& on, system_under_test& where, simulated_memory& memory,
                       simulation_ledger& ledger, simulated_faults& faults,
                       submit_policy how = submit_policy::waits_for_ready);
  simulated_deployment(const simulated_deployment&) = delete;
  simulated_deployment& operator=(const simulated_deployment&) = delete;
  ~simulated_deployment();

  [[nodiscard]] bool all_asked() const noexcept { return busy_ == 0; }

private:
  void begin(std::function<void()> part);
  void ask_world();
  void ask_in(std::size_t lane, rank self);
  void ask_registration(const planned_request& one);
  /// Reserves quota, holds it, and returns it. A world that serves may refuse it only because others hold the quota.
  void ask_credit(const planned_credit& one);
  /// Captures a plan and requests its replays, one after the other, because all use the same memory.
  void ask_capture(const planned_request& one);
  void ask_replay(const planned_request& one, const std::shared_ptr<captured_plan>& plan);
  /// Does the same over processes: the client of each process captures the plan. The client of a process that joins
  /// later captures it before the next replay.
  void ask_captures(const planned_request& one);
  /// The handles of a plan that the clients of the processes hold, by rank.
  struct plan_of_processes {
    struct part {
      std::uint64_t process = 0; ///< The process that was asked to capture it. 0: none.
      std::shared_ptr<captured_plan> plan{};
    };
    std::vector<part> parts;
  };
  /// Requests the capture from those processes of epoch \p now that have not been asked, and waits for their answers.
  void ask_missing_captures(const planned_request& one, const world_event& now,
                            const std::shared_ptr<plan_of_processes>& held);
  void ask_replays(const planned_request& one, const planned_request& plan, const world_event& now,
                   plan_of_processes& held);
  /// The parts of the processes in the latest sub-world of a planned_split, and their clients' views of it.
  struct sub_world_of_processes {
    struct part {
      std::uint64_t process = 0; ///< The process that was asked to split the world for it. 0: none.
      bool is_pending = false;   ///< Its answer is outstanding.
      bool is_stopped = false;   ///< Its client has stopped it while it served.
      std::weak_ptr<simulated_world> world{};
      epoch silent_until{}; ///< The last epoch in which its client makes no requests to it.
    };
    world_number number = 0;
    std::vector<rank> members{}; ///< The members that the world has, in order.
    int size_of_whole = 0;
    std::size_t size_changes = 0; ///< Those until the epoch in which it was split off.
    epoch stopped_in{};           ///< The epoch in which its stop has begun; 0: it has not.
    std::vector<part> parts{};    ///< By rank.
  };
  /// Splits a sub-world off, makes the requests to it, stops it, and splits it off again.
  void use_sub_world(const planned_split& one);
  /// Begins another sub-world if the latest one cannot be used any more.
  void renew(const planned_split& one, const world_event& now, sub_world_of_processes& held);
  /// Requests the split from those processes of epoch \p now that have not been asked, and waits until all members
  /// serve. Returns whether they do.
  [[nodiscard]] bool split_where_missing(const planned_split& one, const world_event& now,
                                         const std::shared_ptr<sub_world_of_processes>& held);
  void ask_members(const planned_request& one, const world_event& now, sub_world_of_processes& held);
  void stop_members(const planned_split& one, sub_world_of_processes& held);
  /// Returns the promise for the answer to \p what: of the process of \p self, or, if that is empty, of the world.
  template <class Reply>
  [[nodiscard]] std::shared_ptr<value_promise<Reply>> expect(const planned_request& what, std::optional<rank> self,
                                                             epoch now, std::function<void(Reply&)> keep);
  /// Suspends the fiber until \p what has been answered, or its answer is overdue.
  void wait_for(const planned_request& what) const;
  /// Suspends the fiber until the client of \p self has its answer to the commit \p what, and returns whether it has
  /// succeeded.
  [[nodiscard]] bool has_committed(const planned_request& what, rank self) const;
  /// Lets the process of a rank leave as planned, and asks for another one.
  void depart(const planned_departure& one);
  /// Lets the client of \p self, whose process has joined by a planned change, make the requests of \p lane that the
  /// others have made before, and that wait for it: those behind the complete ones. Call it before its own request in
  /// epoch \p now.
  void catch_up(std::size_t lane, rank self, epoch now);
  /// Returns the epoch of \p what. The first client that makes the request determines it, so that all use the same one.
  [[nodiscard]] epoch epoch_of(const planned_request& what);
  /// Sleeps until \p what is due.
  void wait_for_time_of(const planned_request& what) const;
  /// Returns the ranks of the world, as numbered in the first epoch.
  [[nodiscard]] std::vector<rank> ranks_in(const world_event& now) const;
  void raise(const planned_fault& one);
  /// Makes the client of \p self skip its requests in \p lane until the epoch ends.
  void silence(std::size_t lane, rank self);

  const scenario& of_;
  simulated_machine& on_;
  system_under_test& where_;
  simulated_memory& memory_;
  simulation_ledger& ledger_;
  simulated_faults& faults_;
  submit_policy how_;
  time_point began_ = virtual_now();
  std::map<std::size_t, epoch> epochs_;
  std::vector<std::vector<epoch>> silent_until_; ///< The last epoch that a client skips, by lane and rank.
  /// The process that has, and until which epoch, by lane and rank.
  std::map<std::pair<std::size_t, rank>, std::pair<std::uint64_t, epoch>> caught_up_;
  std::size_t busy_ = 0;
  world_number last_sub_world_ = 0;
  std::vector<worker> clients_;
};

/// Returns the longest time for answers to all requests and for the end of a stopped world: the sum of everything that
/// can take long, for each rebuild.
[[nodiscard]] nanoseconds longest(const scenario& of);

/// Records the resume points of \p event of world \p where, which process \p process has received, in the ledger
/// (CUT-1). \p order_moves: system_under_test::order_moves() of a sub-world.
void note_resume_points(const scenario& of, const world_event& event, std::uint64_t process, simulation_ledger& ledger,
                        world_number where = 0, std::size_t order_moves = 0);

/// Runs until all requests have been made and answered and the world has ended, or until that is overdue (TIM-1). Call
/// it outside the fibers.
void play_out(const scenario& of, simulated_deployment& deployment, system_under_test& where, simulation_ledger& ledger,
              trace& log);

} // namespace troupe::simulation
