/// Records the answers and launches of a simulated run, and finds violations of the invariants.
#pragma once

#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/testing/simulation/scenario.hpp>
#include <troupe/testing/simulation/simulated_memory.hpp>
#include <troupe/testing/simulation/simulated_trace.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// The counts of violations.
struct verdict {
  std::size_t lost = 0;    ///< Requests without an answer when everything had ended (ONE-1).
  std::size_t doubled = 0; ///< Requests with two answers (ONE-1).
  /// Results, orders, epochs, effects and buffers that are not as specified (the other labels).
  std::size_t wrong = 0;
  std::size_t stuck = 0; ///< Requests and worlds that did not end in time (TIM-1).
  std::size_t split = 0; ///< Launches and successes in an epoch after a launch in a later one (MEM-1).

  [[nodiscard]] bool is_good() const noexcept { return lost + doubled + wrong + stuck + split == 0; }
  verdict& operator+=(const verdict& other) noexcept;
};

/// Identifies a communicator of a run.
struct communicator_place {
  std::uint64_t formation = 0;
  rank self{};             ///< As numbered in the first epoch.
  std::uint64_t split = 0; ///< fault_place::split
  friend auto operator<=>(const communicator_place&, const communicator_place&) = default;
};

/// Identifies a world of a run: 0 is the whole world, and each split has a sub-world with a new number.
using world_number = std::size_t;

/// Records one run. Threads: only that of the run.
class simulation_ledger {
public:
  simulation_ledger(const scenario& of, simulated_memory& memory, trace& log);

  /// Returns the promise for the answer to \p what, a request in epoch \p asked_in to rank \p self or, if empty, to the
  /// world.
  [[nodiscard]] reply_promise expect(const planned_request& what, std::optional<rank> self, epoch asked_in);
  [[nodiscard]] std::size_t unanswered() const noexcept { return unanswered_; }
  [[nodiscard]] std::size_t asked() const noexcept { return entries_.size(); }
  /// Returns the number of requests of each kind.
  [[nodiscard]] const std::map<operation_kind, std::size_t>& kinds() const noexcept { return kinds_; }
  /// Returns the number of requests whose memory was registered when they were made.
  [[nodiscard]] std::size_t on_registered() const noexcept { return on_registered_; }
  /// Returns whether all expected answers to \p what have arrived.
  [[nodiscard]] bool is_answered(const planned_request& what) const;
  /// Returns whether the client of \p self has its answer to its latest request of \p what, or has died.
  [[nodiscard]] bool is_answered(const planned_request& what, rank self) const;
  [[nodiscard]] bool has_succeeded(const planned_request& what, rank self) const;
  /// Returns whether the latest request of \p what to \p self was refused as busy, so it took no position in its lane.
  [[nodiscard]] bool was_busy(const planned_request& what, rank self) const;
  /// Returns whether the request still runs, or has an answer that does not tell whether it has run.
  [[nodiscard]] bool may_still_run(const planned_request& what) const;

  /// Records that a rank launches \p all together in its communicator. The contents of a \p hollow launch, which does
  /// not reach the device, are not checked.
  void launched(const communicator_place& by, std::span<const operation* const> all, bool hollow);
  /// Records that \p self's communicator of formation \p formation registers \p region with its peers.
  void registered(std::uint64_t formation, rank self, const registered_region& region);
  /// Records that the abort of a communicator begins: hanging work then writes to its results.
  void spoil(const communicator_place& of);
  /// Records that the abort of a communicator has returned.
  void aborted(const communicator_place& of) { aborted_.insert(of); }
  /// Records that nothing holds \p self's memory of \p request any more.
  void released(std::size_t request, rank self);
  /// Reports something that took too long, or never ended (TIM-1).
  void stuck(const std::string& what) { find(verdict_.stuck, what); }
  /// Reports something that is not as specified.
  void wrong(const std::string& what) { find(verdict_.wrong, what); }

  /// Records the end of the world. From now on requests must be answered at once, whatever their deadlines (TIM-1).
  void world_ended() noexcept {
    if (!ended_at_) ended_at_ = virtual_now();
  }
  /// Records that the process of \p self has been killed: its clients receive no more answers.
  void died(rank self);
  /// Checks that the process of \p self, which was removed from its world, has answered the requests that are older
  /// than \p grace (ONE-1).
  void removed(rank self, nanoseconds grace);
  /// Records that the service that decides the order knows the successes of \p self before \p until in epoch \p of.
  void counted(rank self, epoch of, time_point until) {
    time_point& known = counted_[{of, self}];
    known = std::max(known, until);
  }
  /// Reports a second answer to \p what (ONE-1).
  void doubled(const std::string& what) { find(verdict_.doubled, what); }
  /// The resume points in a world's event.
  struct resumption {
    epoch counted_from{}; ///< 0: the event has none.
    /// The number of complete operations by lane; std::nullopt stands for the requests to the world.
    std::map<std::optional<std::size_t>, std::uint64_t> complete{};
    /// Agreed values by epoch and position.
    using values = std::map<std::pair<epoch, std::uint64_t>, std::vector<std::byte>>;
    /// The agreed values beyond them, by lane. Empty if some are left out.
    std::map<std::optional<std::size_t>, std::optional<values>> agreed{};
    friend bool operator==(const resumption&, const resumption&) = default;
  };
  /// Records the resume points in an event of epoch \p now of world \p of, which must be the same in all events
  /// (CUT-1).
  void resumed(world_number of, epoch now, resumption points);
  /// Records that the clients have asked for the sub-world \p made of the ranks \p members, which the request
  /// \p asked is for from now on.
  void goes_to(const planned_request& asked, world_number made) { worlds_[asked.number] = made; }
  /// Records that world \p made begins without resume points, because all ranks have stopped the sub-world before it.
  void begins_anew(world_number made) { anew_.insert(made); }
  /// Records that \p process has begun as the process of \p self, and that it has ended or is no longer part of its
  /// world.
  void began(rank self, std::uint64_t process) { processes_[self] = process; }
  void ended(std::uint64_t process) { ended_.try_emplace(process, virtual_now()); }
  /// Records that the controller begins to form epoch \p of with \p ranks, as a planned change of the one before.
  void began(epoch of, std::vector<rank> ranks, bool is_planned);
  /// Records that it ends an epoch without a fault, and refuses what waits there.
  void quiesced() noexcept { was_quiesced_ = true; }
  /// Returns the epoch since which there have been planned changes alone until \p of.
  [[nodiscard]] epoch unbroken_since(epoch of) const;
  /// Returns the first epoch from \p from on in which \p self was a rank; 0 if there is none.
  [[nodiscard]] epoch first_of(rank self, epoch from) const;
  /// Returns whether \p self was a rank of all epochs from \p from to \p to.
  [[nodiscard]] bool has_been_there(rank self, epoch from, epoch to) const;
  /// Returns the first epoch from \p from on since which \p self has been a rank of all, until \p to, where it is one.
  [[nodiscard]] epoch there_since(rank self, epoch from, epoch to) const;
  /// Returns the number of complete operations of \p lane that the clients of epoch \p now were told.
  [[nodiscard]] std::uint64_t complete_in(epoch now, std::size_t lane) const;
  /// Records that the controller has declared \p process lost in epoch \p of, although it may live.
  void declared_lost(std::uint64_t process, epoch of) { lost_in_[process] = of; }
  /// Records that a new controller forms \p next as its first epoch. It begins anew if a process was part of that epoch
  /// or of a later one, which is right only if no such process is left (CUT-1), or those that are have been \p away for
  /// longer than a controller without a store waits for them (docs/recovery.md).
  void forms_again(epoch next, const std::set<std::uint64_t>& away);
  /// An event that has told a process the last commit of each lane.
  struct told_event {
    world_number of = 0;
    std::uint64_t process = 0;
    epoch in{};
    time_point at{};
    std::vector<std::optional<std::uint64_t>> commits;
    bool has_points = true;      ///< Whether it has resume points.
    bool has_survivors = true;   ///< See resume_points.
    std::size_t order_moves = 0; ///< system_under_test::order_moves() of the world's ranks.
  };
  /// Records an event (CUT-1).
  void told(told_event what) { told_.push_back(std::move(what)); }
  /// Checks the number of rebuilds. A run is shorter than the window of the rebuild budget, unless its clock jumps
  /// (FLT-1).
  void judge_rebuilds(std::uint64_t last_epoch);

  /// Checks everything. Call it once everything has ended.
  [[nodiscard]] verdict judge();
  [[nodiscard]] const std::vector<std::string>& findings() const noexcept { return findings_; }

private:
  struct entry {
    const planned_request* what = nullptr;
    std::optional<rank> self{};
    epoch asked_in{};
    time_point at{};
    std::size_t answers = 0;
    bool died = false;         ///< The process was killed before the answer.
    std::uint64_t process = 0; ///< Of `self`, when the request was made.
    std::optional<outcome> first{};
    time_point answered_at{};
    std::vector<std::int64_t> agreed{}; ///< The right value of an agree.
  };
  using batch = std::vector<std::optional<std::size_t>>;
  using batches = std::vector<batch>;

  void answered(std::size_t index, outcome result);
  /// Records that \p asked, which may have waited at a planned change, is for the ranks of epoch \p now.
  void is_for(const planned_request& asked, epoch now);
  void find(std::size_t& count, std::string what);
  /// Checks that no later epoch has launched anything when a process launches or reports success in \p in (MEM-1). \p
  /// does: what the process does.
  void judge_serving(epoch in, const std::string& who, const char* does);
  void judge_outcome(const entry& one);
  /// Checks the answer of a rank that had left the world.
  void judge_lost(const entry& one);
  void judge_memory(const entry& one, rank self);
  void judge_list(const entry& one, rank self);
  void judge_place(const entry& one, rank self);
  /// Checks a part that is launched by itself or in a plan.
  void judge_launch(const planned_request& asked, std::uint64_t formation, rank self, const operation& part);
  void judge_orders();
  void judge_order(std::uint64_t formation, const std::vector<batches>& ranks, std::size_t one, std::size_t other);
  /// Does so for launches of one world, or for what both ranks have launched in all worlds.
  void compare_orders(std::uint64_t formation, const batches& theirs, const batches& mine, std::size_t one,
                      std::size_t other);
  /// Returns the launches of \p all in which both ranks take part.
  [[nodiscard]] batches shared(const batches& all, rank one, rank other) const;
  void judge_lanes();
  /// Checks the resume points of world \p of.
  void judge_points(world_number of);
  /// Checks that \p complete, which clients were told, can be the number of operations of \p lane of world \p of that
  /// succeeded in epoch \p ended (CUT-1).
  void judge_resumed(world_number of, epoch ended, const std::optional<std::size_t>& lane, std::uint64_t complete);
  /// Checks that no process was told of fewer commits than another one knew from an earlier epoch: from that epoch's
  /// event, or because it saw a later commit succeed, which its clients make after all have seen the one before. If all
  /// that knew of them have ended, the event must say so (CUT-1).
  void judge_commits();
  /// Checks the value of an agree, and that no two ranks have received different values at one position.
  void judge_agreed(const entry& one);
  /// Checks that the events of the next epoch tell the values that a process, which lives on, has received beyond the
  /// resume points, and that no event tells another value than a rank has received (CUT-1).
  void judge_told_values();
  /// Returns whether \p event may say nothing of earlier commits: it is of a sub-world all of whose processes have
  /// ended while another service began to order its requests, so nobody knows that there was one (docs/recovery.md).
  [[nodiscard]] bool may_begin_anew(const told_event& event) const;
  [[nodiscard]] bool has_ended(std::uint64_t process, time_point by) const;
  /// Returns the entry of the latest request of \p self for \p what, or null.
  [[nodiscard]] const entry* find_entry(const planned_request& what, rank self) const;
  /// Returns whether the service that decides the order certainly knows the success of \p one in epoch \p of.
  [[nodiscard]] bool is_counted(const entry& one, epoch of) const;
  /// Returns whether \p one may have succeeded in epoch \p of at its rank.
  [[nodiscard]] bool may_have_succeeded(const entry& one, epoch of) const;
  [[nodiscard]] std::string name_of(const entry& one) const;
  /// Returns whether \p one, which was asked in its epoch, may be done in \p in: that, or one that continues it.
  [[nodiscard]] bool may_end_in(const entry& one, epoch in) const {
    return in >= one.asked_in && unbroken_since(in) == unbroken_since(one.asked_in);
  }
  [[nodiscard]] bool changes_ranks() const noexcept { return of_.processes && of_.processes->plans_changes; }
  /// Returns whether a later process of the same rank has made the same request again.
  [[nodiscard]] bool is_repeated(const entry& one) const;
  /// Checks that a planned change has refused nothing that fits the next epoch.
  void judge_refusals();
  /// Returns the world to which the clients have sent \p what.
  [[nodiscard]] world_number world_of(const planned_request& what) const {
    const auto found = worlds_.find(what.number);
    return found == worlds_.end() ? 0 : found->second;
  }

  const scenario& of_;
  simulated_memory& memory_;
  trace& log_;
  std::vector<entry> entries_;
  std::size_t unanswered_ = 0;
  std::map<operation_kind, std::size_t> kinds_;
  std::size_t on_registered_ = 0;
  std::map<std::uint64_t, std::vector<batches>> launches_; ///< Indexed by formation, then by rank.
  /// The communicator that launched a request last, by request and rank.
  std::map<std::pair<std::size_t, rank>, communicator_place> launched_by_;
  std::set<std::pair<std::size_t, rank>> hollow_; ///< Those of them whose launch was hollow.
  std::set<communicator_place> aborted_;
  std::map<std::uint64_t, std::size_t> commits_; ///< The requests that are commits, by commit.
  std::map<std::size_t, world_number> worlds_;   ///< By request; without an entry: the whole world.
  std::set<world_number> anew_;                  ///< See begins_anew().
  std::map<std::size_t, const planned_request*> requests_;
  std::map<std::size_t, std::vector<std::size_t>> entries_of_; ///< Indices in entries_, by request.
  struct range {
    const std::byte* first;
    std::size_t size_bytes;
  };
  std::map<std::pair<std::uint64_t, rank>, std::vector<range>> known_; ///< Registered ranges, by formation and rank.
  /// Requests without a recorded launch whose results had not been written when their memory was released.
  std::set<std::pair<std::size_t, rank>> released_unwritten_;
  std::map<world_number, std::map<epoch, resumption>> resumed_;
  struct begun_epoch {
    epoch since{};
    std::vector<rank> ranks{};
  };
  std::map<epoch, begun_epoch> begun_; ///< The epochs that the controller has begun to form.
  epoch latest_{};                     ///< The one that it has begun last.
  bool was_quiesced_ = false;
  /// Agreed values by world, lane, epoch and position.
  std::map<std::tuple<world_number, std::size_t, epoch, std::uint64_t>, agreed_value> agreed_;
  std::map<std::pair<epoch, rank>, time_point> counted_;
  std::map<rank, std::uint64_t> processes_;   ///< The present process of each rank.
  std::map<std::uint64_t, time_point> ended_; ///< When processes have ended.
  std::vector<told_event> told_;
  std::map<std::uint64_t, epoch> lost_in_; ///< The latest epoch in which a process was declared lost.
  bool began_anew_ = false;                ///< Numbers of epochs are ambiguous.
  epoch serving_{};                        ///< The latest epoch in which anything was launched. Over processes only.
  std::optional<time_point> ended_at_;
  verdict verdict_;
  std::vector<std::string> findings_;
};

} // namespace troupe::simulation
