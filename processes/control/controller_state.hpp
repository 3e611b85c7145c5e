/// Implements a controller's membership decisions without CAF: which processes belong to the world, and which of them
/// form the next epoch.
#pragma once

#include <troupe/actors/world/recovery/world_recovery.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/threads/boot_clock.hpp>
#include <troupe/device/threads/running_clock.hpp>
#include <troupe/processes/control/control_messages.hpp>
#include <troupe/processes/control/peer_silence.hpp>
#include <troupe/processes/store/control_record.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

/// Returns whether both describe the same process, regardless of its connections.
[[nodiscard]] bool is_same_process(const process_identity& one, const process_identity& other);

/// How the connection of a session has ended.
enum class session_end : std::uint8_t {
  closed, ///< Its process has closed it, before which it has ended its lease, or has ended itself (MEM-1).
  broken, ///< The network has failed, or this side has given it up: its process may still serve.
};

/// Identifies a change of the ranks that was asked for.
using change_id = std::uint64_t;

namespace control_effect {
/// Sends \p what to a process.
struct send {
  session_id to;
  controller_message what;
};
/// Closes a connection after all earlier messages have been sent.
struct close_session {
  session_id which;
};
/// Kills a process that may still be alive.
struct kill_process {
  process_identity who;
};
/// Requests a process for a place that has none during a rebuild.
struct request_process {
  int place;
};
/// Reports an event to the owner.
struct announce {
  control_event event;
};
/// Starts to order the requests of an epoch.
struct open_order {
  epoch of;
  int world_size = 0;
  told_commits told{}; ///< The commits that the processes know.
  /// The rank of the previous epoch that each rank was, if any; empty unless the order of that epoch was held.
  std::vector<std::optional<rank>> before{};
};
/// Stops deciding the order of the epoch, so that the next one continues it (order_server::hold()). The owner calls
/// on_order_held() with the result. It is the last effect of a call.
struct hold_order {
  epoch of;
  epoch next; ///< The epoch that is to follow.
};
/// Stops ordering; waiting requests are refused with \p why.
struct close_order {
  error why;
};
/// Stops expecting requests of a rank of this epoch: its process has left the world.
struct leave_order {
  epoch of;
  rank self;
};
/// Answers controller_state::on_change_asked(): the change is done, or why nothing has changed.
struct changed {
  change_id which;
  error why;
};
/// Reports that the world has ended and waits for no further process.
struct end {
  error why;
};
/// Writes a decision down. The effects that follow are to be carried out when the store has it. Only with
/// controller_terms::has_successors.
struct decide {
  control_record what;
};
} // namespace control_effect

using control_effects =
    std::vector<std::variant<control_effect::send, control_effect::close_session, control_effect::kill_process,
                             control_effect::request_process, control_effect::announce, control_effect::open_order,
                             control_effect::hold_order, control_effect::close_order, control_effect::leave_order,
                             control_effect::changed, control_effect::end, control_effect::decide>>;

/// Implements the membership decisions of a controller as a state machine whose calls return effects.
/// SEC-2: a message of a process that has not been admitted changes no state; it is at most answered.
/// Threads: one call at a time. Time advances only by the calls, which are to come more often than heartbeats are due:
/// time without calls is a pause of this process (running_clock). It is given the time since boot, so that it knows of
/// pauses of its machine, too, during which processes of other hosts have not heard it.
class controller_state {
public:
  controller_state(controller_terms terms, boot_time now);

  /// Begins with what the former controller has decided last, if there was one. Call it first, once, with
  /// controller_terms::has_successors. The ranks are expected to join again and go on with their epoch.
  [[nodiscard]] control_effects take_over(const std::optional<control_record>& found, boot_time now);
  /// Sets until when this controller may grant leases: no other one is elected before.
  void claim_until(boot_time end) noexcept { claimed_until_ = end; }
  /// Sets whether the leases of epoch \p of outlast their connections (lease_grant::outlasts). Their ends are no
  /// proofs then, and a rank that connects again goes on.
  void note_outlasting(epoch of, bool outlasts);
  /// Handles a proof that the former process of \p which, whose connection has ended, has ended its lease.
  [[nodiscard]] control_effects on_lease_ended(session_id which, boot_time real);
  /// Returns whether the process of \p which is a member, or may serve although it is none.
  [[nodiscard]] bool may_serve(session_id which) const { return members_.contains(which) || departed_.contains(which); }

  [[nodiscard]] control_effects on_join(session_id from, const join_request& asked, boot_time real,
                                        std::int64_t wall_clock_ns);
  /// Handles a message from the process behind \p from. A process whose session has ended is sent a fence_notice.
  [[nodiscard]] control_effects on_message(session_id from, const process_message& what, boot_time real);
  /// Handles data from the process behind \p from that is no concern of this class. An ended session is answered as by
  /// on_message().
  [[nodiscard]] control_effects on_sign_of_life(session_id from, boot_time now);
  [[nodiscard]] control_effects on_session_lost(session_id which, session_end how, boot_time real);
  /// Handles the report that the process called \p name, with this pid, has ended, as observed by the program that
  /// started it.
  [[nodiscard]] control_effects on_process_ended(std::string_view name, std::int64_t pid, const std::string& how,
                                                 boot_time real);
  /// Handles the failure of a rank in epoch \p of, as observed by the controller or by the order service of its host.
  /// If \p why is errc::rank_lost, its process has ended; else that says nothing about whether it is alive.
  [[nodiscard]] control_effects on_rank_failed(session_id which, epoch of, error why, boot_time real);
  /// Notes that an operation between these two ranks of the present epoch does not end, although both have launched it.
  /// Call it before on_message() with the failed_report about that.
  void suspect_link(rank one, rank other);
  /// Handles the result of control_effect::hold_order.
  [[nodiscard]] control_effects on_order_held(bool is_held, boot_time real);
  /// Returns whether the result of control_effect::hold_order is awaited.
  [[nodiscard]] bool waits_for_order() const noexcept { return waits_for_order_; }
  /// Returns whether the world is between the hold of its order and the next epoch that serves, without a fault.
  [[nodiscard]] bool is_switching() const noexcept { return is_switching_; }
  /// Sets whether the order of the world can be held (control_effect::hold_order). If not, the world is quiesced before
  /// it forms with more ranks.
  void can_hold_order(bool can) noexcept { can_hold_ = can; }
  /// Tells whether the order service of an epoch that was taken over is still to join. The ranks do not change until it
  /// has: it could be told neither to hold the order nor to close it.
  void await_order_service(bool awaits) noexcept { awaits_service_ = awaits; }
  [[nodiscard]] control_effects on_tick(boot_time real);
  [[nodiscard]] control_effects on_stop(boot_time now);
  /// Begins a change of the ranks; answered once by control_effect::changed. \p asker: the member that asks, if any.
  /// \p id: not used by another change. While the world switches as planned, it waits for the next epoch. Processes
  /// that stand by take the places of those that leave, or the world goes on with fewer ranks. Nothing changes if too
  /// few would remain then (rank_change).
  [[nodiscard]] control_effects on_change_asked(change_id id, std::optional<session_id> asker, const rank_change& asked,
                                                boot_time now);
  /// Returns the processes of the world, ranks first.
  [[nodiscard]] world_processes processes() const;
  /// Returns the present time of this controller's running_clock.
  [[nodiscard]] running_time read_clock(boot_time now);

  [[nodiscard]] control_event event() const;
  /// Returns how much it keeps about processes that are no members. While the world serves, and no lease of a lost
  /// process runs, that is at most one record for each of their connections that has not ended.
  [[nodiscard]] std::size_t records_of_others() const noexcept;
  /// Checks the conditions that are the same for processes, drivers and the order services of other hosts. Returns why
  /// one with \p token is refused, or errc::none.
  [[nodiscard]] error objection_to_peer(const std::string& token) const;
  /// Returns the value of a setting that all processes of the world have; empty if none has joined.
  [[nodiscard]] std::string agreed_value(std::string_view name) const;
  /// Returns whether the process behind \p from has been admitted and has not been lost since.
  [[nodiscard]] bool has_member(session_id from) const { return members_.contains(from); }
  [[nodiscard]] const controller_terms& terms() const noexcept { return terms_; }
  [[nodiscard]] epoch current_epoch() const noexcept { return epoch_; }
  /// Returns the rank of the process behind \p from in epoch \p of, or nullopt if it is not a rank of that epoch.
  [[nodiscard]] std::optional<rank> rank_of(session_id from, epoch of) const;
  /// Returns the session of a rank of the present epoch.
  [[nodiscard]] std::optional<session_id> session_of(rank one) const;

private:
  struct member {
    process_identity who;
    std::optional<int> place{}; ///< Its assigned place; for a spare, the preferred one.
    bool spare = false;
    std::optional<rank> self{}; ///< Its rank in the present epoch.
    epoch joined_in{};          ///< The epoch before the first one that it is part of.
    bool reported = false;      ///< Whether it has sent the report that the phase waits for.
    epoch last_epoch{};         ///< The latest that it was part of when it joined.
    told_commits told{};        ///< Its latest commits_report.
    bool has_told = false;      ///< Whether it has sent that for the forming epoch.
    bool leaving = false;       ///< Whether it is to leave as planned: see on_change_asked().
    bool worked = false;        ///< Whether it was a rank of the latest epoch that served.
    std::uint64_t beat = 0;     ///< The number of its latest heartbeat.
    bool was_granted = false;   ///< Whether it has been sent a lease_grant since the latest heartbeat to all.
    boot_time lease_until{};    ///< It serves no longer without another grant. By this controller's clock.
    bool outlasts = false;      ///< See note_outlasting().
    /// Whether it is expected to join again: its connection has ended after a pause of the controller, or its lease
    /// outlasts the connection.
    bool is_away = false;
    peer_silence silence{};

    /// Returns whether no other process can have its place now.
    [[nodiscard]] bool holds_place() const noexcept { return place && !spare && !is_away && !leaving; }
  };
  using members = std::map<session_id, member>;
  /// A process that was lost, and may still serve under its lease.
  struct lease_holder {
    process_identity who;
    boot_time until;
  };
  /// Names a network link by its ends: two hosts, or two processes of one host, in alphabetical order.
  using network_path = std::pair<std::string, std::string>;
  /// The time at which a broken link is tried again, and the delay before it.
  struct link_retry {
    running_time at{};
    nanoseconds wait{};
    bool hangs = false; ///< Epochs form over it, and then hang: that one forms does not show that it is repaired.
  };

  /// A change of the ranks that was asked for, and is not answered.
  struct asked_change {
    change_id id = 0;
    rank_change_kind kind{};
    std::set<session_id> leavers{}; ///< The processes that leave.
    bool renumbers = false;         ///< Whether it allows other numbers of the ranks that stay.
    int place = 0;                  ///< Of the process that joins.
    running_time due{};             ///< By when it has joined.
  };

  /// A change that was asked for while may_switch(), and begins when the next epoch serves, or if the order is not
  /// held.
  struct delayed_change {
    change_id id = 0;
    std::optional<session_id> asker{};
    rank_change asked{};
  };

  /// A change of the ranks that is prepared beside the present epoch (docs/design/0117-planned-change.md).
  struct planned_change {
    enum class step : std::uint8_t {
      preparing, ///< The ranks of the next epoch create their communicators. The present one serves.
      holding,   ///< The ranks of the present one finish their requests to the whole world. Others are served.
      draining,  ///< The order is held, and what was released finishes.
    };
    epoch before; ///< The latest epoch that any process knew.
    epoch of;
    std::map<session_id, rank> ranks{};
    std::optional<unique_id> id{};
    std::set<session_id> reported{}; ///< Those that have done the present step.
    step at = step::preparing;
    running_time due{};
  };

  /// Ends the silence of the member behind \p from, and returns the member. A process whose session has ended is sent a
  /// fence_notice.
  members::iterator hear(session_id from, running_time now, control_effects& out);
  /// Renews the lease of a rank.
  void grant(session_id to, member& one, control_effects& out) const;
  /// Keeps the lease of a process that is no member any more.
  void note_departure(session_id which, const member& gone);
  /// Returns whether a process that is no member may still serve in an earlier epoch under its lease. No epoch begins
  /// meanwhile (MEM-1).
  [[nodiscard]] bool is_lease_running() const;
  /// Returns whether this controller has formed no epoch yet, and ranks of the latest one of a former controller have
  /// not joined it. It learns of that epoch from those that have.
  [[nodiscard]] bool misses_former_ranks() const;
  /// Returns whether the rank of that epoch whose process is called \p name has joined.
  [[nodiscard]] bool has_returned(const std::string& name) const;
  /// Returns how many ranks of that epoch have joined this controller again or were replaced.
  [[nodiscard]] std::size_t accounted_ranks() const;
  /// Returns whether the others are half of the ranks or more. They may serve under another controller.
  [[nodiscard]] bool lacks_majority() const;
  /// Keeps what a process that joins says about a former controller.
  void note_past(const join_request& asked);
  /// Handles the report that a member's rank has failed.
  void fail(members::iterator which, const failed_report& report, running_time now, control_effects& out);
  [[nodiscard]] static error stopping_error();
  [[nodiscard]] static error ended_session(const error& why);
  /// Returns why \p asked is refused, or errc::none. Earlier connections of the same process are treated as closed.
  [[nodiscard]] error objection_to(const join_request& asked, std::int64_t wall_clock_ns) const;
  [[nodiscard]] error objection_to_facts(const join_request& asked) const;
  [[nodiscard]] error objection_to_place(const join_request& asked) const;
  /// Returns the holder of \p place; null if the place is free or \p asker itself holds it.
  [[nodiscard]] const member* holder_of(int place, const process_identity* asker = nullptr) const;
  /// Returns the process of a rank, other than \p who, that uses the GPU of \p who; null if there is none.
  [[nodiscard]] const member* user_of_gpu(const process_identity& who) const;
  void give_place(member& newcomer, const join_request& asked);
  /// Returns the rank that \p asked says it still is, if it is one.
  [[nodiscard]] members::iterator find_kept(const join_request& asked);
  /// Lets a rank go on in a new session.
  void resume(members::iterator kept, session_id from, const join_request& asked, running_time now,
              control_effects& out);
  /// Whether ranks of the present epoch finish at least what they have begun, so one that was away may return to it.
  [[nodiscard]] bool serves_on() const noexcept {
    return phase_ == control_phase::serving || phase_ == control_phase::finishing || phase_ == control_phase::stopping;
  }
  [[nodiscard]] control_record record() const;
  void decide(control_effects& out) const;
  void end(error why, control_effects& out) const;
  /// Gives up the process that was expected to return to \p place, which another process has been given.
  void replace_away(int place, running_time now, control_effects& out);

  /// Removes a process that has finished its work. The world finishes if it was serving, or if it is rebuilding and no
  /// process is left that worked in the latest epoch.
  void remove_finished(members::iterator which, running_time now, control_effects& out);
  void lose(members::iterator which, error why, bool kill, running_time now, control_effects& out);
  /// Ends the epoch with an error, and rebuilds or ends the world, as its recovery decides. \p lost: the process whose
  /// loss is the fault.
  void fail_epoch(world_fault fault, running_time now, control_effects& out,
                  const std::optional<process_identity>& lost = {});
  /// Requests, once per rebuild, a process for each place that has none.
  void request_processes(running_time now, control_effects& out);
  /// Takes the next step that the present phase allows: forms an epoch, or quiesces in order to form with more ranks.
  void advance(running_time now, control_effects& out);
  void fill_places(running_time now);
  /// Begins the time to gather anew with the first process that joins a world without any. Ends the world if this has
  /// happened too often: processes that join and are lost before the others come would postpone the end indefinitely.
  void begin_gathering(running_time now, control_effects& out);
  void begin_epoch(running_time now, control_effects& out);
  /// Forms the epoch if its id and the commits that its ranks know have arrived.
  void form_if_due(running_time now, control_effects& out);
  /// Returns the commits that the processes know.
  [[nodiscard]] told_commits known_commits() const;
  /// Keeps what \p gone knew, in case no other process knows it.
  void keep_commits(const member& gone);
  void quiesce(running_time now, control_effects& out);

  // Planned changes.
  /// Returns whether the ranks can change without refusing requests: the processes agree on an order that can be held,
  /// and their communicators form beside others.
  [[nodiscard]] bool can_plan(std::size_t next_ranks) const;
  /// Begins to form with the ranks that the world is to have: prepares that, or quiesces if it cannot.
  void change_ranks(running_time now, control_effects& out);
  void begin_change(change_id id, std::optional<session_id> asker, const rank_change& asked, running_time now,
                    control_effects& out);
  /// Sets what \p asked is about in \p made. Returns why it is refused, or errc::none.
  [[nodiscard]] error objection_to(const rank_change& asked, std::optional<session_id> asker, asked_change& made,
                                   running_time now);
  /// Returns why the world cannot go on without \p leavers, or errc::none.
  [[nodiscard]] error objection_to_departure(const std::set<session_id>& leavers, bool renumbers, running_time now);
  /// Returns why the world cannot go on with the processes that have places and do not leave, or errc::none.
  [[nodiscard]] error objection_to_the_rest(bool renumbers) const;
  /// Keeps the ranks that are to leave if processes that were to take their places were lost meanwhile, so that the
  /// world cannot go on without them. Returns whether it does.
  bool keep_needed_leavers(control_effects& out);
  /// Ends the processes that are to leave, once they are no ranks any more.
  void dismiss_leavers(control_effects& out) const;
  /// Answers the changes that are done.
  void settle_changes(control_effects& out);
  /// Returns whether a change may not be given up any more for another one: the order service of a host may have
  /// stopped deciding.
  [[nodiscard]] bool may_switch() const noexcept { return is_switching_ || waits_for_order_; }
  void begin_delayed(running_time now, control_effects& out);
  /// Answers that the ranks that are to leave, or were to when the next epoch serves, stay because of \p why.
  void keep_leavers(error why, control_effects& out);
  /// Does so, and answers all other changes with \p why.
  void refuse_changes(const error& why, control_effects& out);
  void prepare(control_effects& out) const;
  /// Handles that the process behind \p from has done the present step of the change.
  void note_step(session_id from, running_time now, control_effects& out);
  void hold(running_time now, control_effects& out);
  /// Gives the change up because of \p why. The world serves on, and tries again later.
  void drop_change(const error& why, running_time now, control_effects& out);
  [[nodiscard]] bool is_in_change(session_id one) const { return planned_ && planned_->ranks.contains(one); }
  [[nodiscard]] epoch latest_epoch() const;
  void give_up(error why, control_effects& out);

  // Broken links: decide which link is broken and which ranks are excluded.
  /// Handles the report that \p one has not formed the epoch, and which peers it could not reach.
  void on_forming_failed(member& one, error why, const std::vector<rank>& blamed, running_time now,
                         control_effects& out);
  /// Ends an epoch that serves because an operation does not end. Two consecutive hangs between the same two processes
  /// count as a broken link.
  void on_hang(error why, running_time now, control_effects& out);
  /// Excludes \p side because \p names are broken, and adds to \p why until when. Returns whether the world can form
  /// without it now.
  [[nodiscard]] bool leave_out(const std::vector<session_id>& side, const std::set<network_path>& names, error& why,
                               running_time now);
  /// Decides which links are broken, after all expected reports have arrived or the deadline has passed.
  void judge_links(running_time now, control_effects& out);
  [[nodiscard]] std::vector<session_id> choose_side(const std::set<std::pair<rank, rank>>& unreached) const;
  /// Turns the processes in \p side into spares if the world can form without them now. Returns whether it can.
  [[nodiscard]] bool set_aside(const std::vector<session_id>& side, running_time now);
  [[nodiscard]] bool is_cut_off(const member& one, running_time now) const;
  void forget_links_of_ranks();
  void forget_old_links(running_time now);
  [[nodiscard]] static network_path path_between(const process_identity& one, const process_identity& other);
  void announce(control_effects& out, std::optional<process_identity> lost = {}) const;
  void send_to_ranks(const controller_message& what, control_effects& out) const;
  /// Returns whether an epoch forms or serves, or has drained while its ranks hold requests for the next one.
  [[nodiscard]] bool in_epoch() const noexcept;
  [[nodiscard]] bool all_reported() const;
  /// Returns whether a process is expected to join again. No epoch begins before it has, or is lost.
  [[nodiscard]] bool is_anyone_away() const;
  [[nodiscard]] std::vector<int> free_places(const process_identity* asker = nullptr) const;
  /// Returns why the time to gather has passed.
  [[nodiscard]] std::string missing_text() const;

  controller_terms terms_;
  members members_;
  std::map<session_id, error> fenced_; ///< Former members, with the reason why they were excluded.
  std::vector<shared_fact> agreed_;    ///< The facts of the first process that joined.
  control_phase phase_ = control_phase::gathering;
  epoch epoch_{0};
  int ranks_ = 0;
  std::vector<std::optional<rank>> before_{}; ///< See control_effect::open_order.
  std::optional<unique_id> id_{};             ///< The epoch's unique id, once it has arrived.
  bool directed_ = false;                     ///< Whether the ranks have been directed to form the epoch.
  told_commits lost_commits_{};               ///< The latest that processes knew which have left.
  epoch lost_epoch_{};                        ///< The latest that such a process was part of when it joined.
  bool served_ = false;                       ///< Whether any epoch has served.
  bool some_done_ = false;                    ///< Whether a rank of the latest epoch that served has finished its work.
  std::set<int> wanted_;                      ///< Places for which request_process has been emitted in this rebuild.
  error reason_{};
  running_time due_;          ///< Deadline of the present phase.
  running_time not_before_{}; ///< Earliest time of the next epoch.
  bool can_hold_ = false;     ///< See can_hold_order().
  bool awaits_service_ = false;
  bool waits_for_order_ = false;
  bool is_switching_ = false;
  bool is_held_ = false; ///< Whether the order of the present epoch is held.
  std::optional<planned_change> planned_{};
  std::vector<asked_change> asked_{};
  std::vector<delayed_change> delayed_{};
  epoch tried_{};              ///< The latest epoch that was prepared: its number is not used again.
  int given_up_ = 0;           ///< Number of changes given up since the last epoch began.
  running_time next_change_{}; ///< Earliest time of the next change.
  running_time spoke_{};       ///< Time of the last heartbeat to all processes.
  std::optional<running_time> detected_{};
  world_recovery recovery_;
  recovery_budget gatherings_; ///< Of processes that join an empty world, since the last epoch began.
  running_clock running_;      ///< All times here are its times, except those of leases. Each call reads it first.
  boot_time real_;             ///< The real time of that reading.
  boot_time started_;          ///< A former controller has granted no lease since.
  boot_time claimed_until_ = boot_time::max();
  std::uint64_t incarnation_ = 1;
  std::map<session_id, lease_holder> departed_;
  /// The names of processes that have joined and were in an epoch before, and the latest epoch of which each knows.
  std::map<std::string, epoch> returned_;
  /// The names of processes that were started again after one of that name had ended; true for spares.
  std::map<std::string, bool> replaced_;
  epoch former_epoch_{};               ///< The latest epoch in which one of `returned_` was.
  std::set<std::string> former_ranks_; ///< The names of the processes that were its ranks.
  std::size_t former_size_ = 0;        ///< The number of its ranks.
  bool had_epochs_ = false;            ///< A process that was no rank has told of an epoch of a former controller.
  /// Until then the processes that were connected to a former controller notice its loss and join this one.
  running_time returning_until_{};
  nanoseconds longest_lease_{}; ///< That they have been granted.
  /// After a pause that processes may have taken for the controller's loss: until when a connection that ends does not
  /// mean that its process has.
  running_time in_doubt_until_{};
  bool is_joining_ = false; ///< A process is being admitted: no epoch begins meanwhile.

  /// In the forming epoch: pairs of a rank and the peer that it could not reach.
  std::map<std::pair<rank, rank>, std::string> unreached_; ///< With the text of the rank's report.
  running_time judged_at_{};                       ///< Time at which unreached_ is judged; valid if that is not empty.
  std::set<network_path> suspected_{};             ///< Links suspected in the previous forming.
  std::optional<std::pair<rank, rank>> hanging_{}; ///< See suspect_link().
  std::optional<network_path> hung_{};             ///< The link between the two processes of the latest hang, if known.
  running_time hung_at_{};
  std::map<network_path, link_retry> broken_{};
};

} // namespace troupe
