/// What a controller decides, without CAF: who is in the world, which epoch forms next and with whom.
#pragma once

#include <troupe/actors/control/control_messages.hpp>
#include <troupe/actors/world/recovery_ladder.hpp>
#include <troupe/completion/poller/clock.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

/// What becomes of a world that has lost a process.
enum class loss_policy : std::uint8_t {
  fail,    ///< It ends.
  respawn, ///< It waits for another process in the lost one's place, a spare rather than a new one.
  shrink,  ///< It goes on at once with a spare, or without, and grows back when another process has come.
};
[[nodiscard]] std::string_view to_string(loss_policy policy) noexcept;
/// Errors: invalid_argument, naming the choices.
[[nodiscard]] loss_policy parse_loss_policy(std::string_view name);

/// What a controller is set up with.
struct controller_terms {
  int world_size = 1; ///< Processes, one rank each.
  loss_policy policy = loss_policy::respawn;
  int smallest = 1;    ///< The fewest ranks to go on with, under loss_policy::shrink.
  std::string token{}; ///< That whoever joins must know; empty (in simulations alone): none is asked for.
  nanoseconds heartbeat{std::chrono::milliseconds{250}};
  /// Silence after which a process counts as lost. Only time in which the controller itself was awake counts. A process
  /// that ends is noticed at once, by its connection or its launcher (docs/design/0050-silence.md).
  nanoseconds suspicion{std::chrono::seconds{10}};
  nanoseconds gather{std::chrono::seconds{60}}; ///< Until all processes have come, at first and after a loss.
  nanoseconds form{std::chrono::seconds{60}};
  nanoseconds drain{std::chrono::seconds{30}};
  /// After a rank's own fault, until the next epoch begins: so that the death of a process which its peers see first as
  /// an error of the communicator is known by then.
  nanoseconds settle{std::chrono::milliseconds{50}};
  /// From the first report of a peer that could not be reached until the forming is judged: the peer's own report comes
  /// meanwhile (docs/design/0051-broken-links.md).
  nanoseconds judge{std::chrono::seconds{1}};
  nanoseconds link_retry{std::chrono::seconds{10}};      ///< Until a broken link is tried again; doubled each time,
  nanoseconds link_retry_most{std::chrono::minutes{10}}; ///< up to this.
  nanoseconds clock_skew{std::chrono::seconds{60}};      ///< Between a process's host and the controller's, at most.
  /// Losses and faults within `window`; the world ends at the one after them.
  std::size_t rebuilds = 10;
  nanoseconds window{std::chrono::minutes{10}};
};

/// A connection to a process: the session that it is given, which its shell draws.
using link_id = session_id;

/// What a controller's world does now.
enum class control_phase : std::uint8_t {
  gathering, ///< Processes join for the first time.
  forming,   ///< An epoch's ranks meet.
  serving,
  quiescing,  ///< It serves no more, to form with more ranks.
  rebuilding, ///< Between two epochs, after a loss or a fault.
  finishing,  ///< Some processes have done their work and gone, and the others are let finish theirs.
  stopping,   ///< Processes have been told to end.
  failed,
};
[[nodiscard]] std::string_view to_string(control_phase phase) noexcept;

/// What a controller tells of its world.
struct control_event {
  control_phase phase = control_phase::gathering;
  troupe::epoch epoch{};
  int ranks = 0;                                ///< In the epoch.
  int world_size = 0;                           ///< That it should have.
  std::size_t spares = 0;                       ///< Standing by.
  std::vector<std::string> holders{};           ///< Names of the processes that are ranks of the epoch.
  error reason{};                               ///< Of rebuilding and failed, and of serving what came before it.
  std::optional<process_identity> lost{};       ///< The process whose loss this is about.
  std::optional<nanoseconds> since_detection{}; ///< Of serving after a fault: since that was known.
};
[[nodiscard]] std::string describe(const control_event& event);

/// Whether both are one process, by whatever connections it speaks.
[[nodiscard]] bool is_same_process(const process_identity& one, const process_identity& other);

namespace control_effect {
/// Sends \p what to a process.
struct send {
  link_id to;
  controller_message what;
};
/// After what was sent.
struct close_link {
  link_id which;
};
/// It is not to be trusted to be dead.
struct kill_process {
  process_identity who;
};
/// The world rebuilds, and no process is there for this place.
struct want_process {
  int place;
};
/// Tells those who listen.
struct announce {
  control_event event;
};
/// Requests of the epoch are put into one order from now on.
struct open_order {
  epoch of;
  int world_size;
};
/// No more of them; what waits is refused with \p why.
struct close_order {
  error why;
};
/// No process is left, or none will be waited for.
struct end {
  error why;
};
} // namespace control_effect

using control_effects =
    std::vector<std::variant<control_effect::send, control_effect::close_link, control_effect::kill_process,
                             control_effect::want_process, control_effect::announce, control_effect::open_order,
                             control_effect::close_order, control_effect::end>>;

/// SEC-2: a message of a process that has not been admitted changes nothing here; it is at most answered.
/// Threads: its shell's, one call at a time. Time only comes with the calls.
class controller_state {
public:
  controller_state(controller_terms terms, time_point now);

  [[nodiscard]] control_effects on_join(link_id from, const join_request& asked, time_point now,
                                        std::int64_t wall_clock_ns);
  /// Of a process that has joined by \p from. One whose session has ended is fenced.
  [[nodiscard]] control_effects on_message(link_id from, const process_message& what, time_point now);
  [[nodiscard]] control_effects on_link_down(link_id which, time_point now);
  /// Whoever started the process called \p name, with this pid, has seen it end.
  [[nodiscard]] control_effects on_process_ended(std::string_view name, std::int64_t pid, const std::string& how,
                                                 time_point now);
  [[nodiscard]] control_effects on_tick(time_point now);
  [[nodiscard]] control_effects on_stop(time_point now);

  [[nodiscard]] control_event event() const;
  /// Whether the process that speaks by \p from has been admitted, and is not lost since.
  [[nodiscard]] bool has_member(link_id from) const { return members_.contains(from); }
  [[nodiscard]] epoch current_epoch() const noexcept { return epoch_; }
  /// Who speaks by \p from, in the epoch \p of; none where that is no rank of it.
  [[nodiscard]] std::optional<rank> rank_of(link_id from, epoch of) const;
  /// By rank, of the present epoch.
  [[nodiscard]] std::optional<link_id> link_of(rank one) const;

private:
  struct member {
    process_identity who;
    std::optional<int> place{}; ///< Of a spare: the one it is meant for.
    bool spare = false;
    std::optional<rank> self{}; ///< In the present epoch.
    epoch joined_in{};          ///< The epoch before its first.
    bool reported = false;      ///< What the phase waits for.
    bool worked = false;        ///< It was a rank of the latest epoch that has served.
    time_point heard{};
    bool silent = false; ///< For too long, at the last tick.
  };
  using members = std::map<link_id, member>;
  /// Two hosts, or two processes of one host, in alphabetical order.
  using link_name = std::pair<std::string, std::string>;
  /// A link that is known to be broken.
  struct link_retry {
    time_point at{};
    nanoseconds wait{};
  };

  [[nodiscard]] static error told_to_end();
  [[nodiscard]] static error ended_session(const error& why);
  /// As if earlier connections of the same process were over.
  [[nodiscard]] error objection_to(const join_request& asked, std::int64_t wall_clock_ns) const;
  [[nodiscard]] error objection_to_facts(const join_request& asked) const;
  [[nodiscard]] error objection_to_place(const join_request& asked) const;
  /// Null where the place is free, or where \p asker itself has it.
  [[nodiscard]] const member* holder_of(int place, const process_identity* asker = nullptr) const;
  /// The rank's process, another than \p who, that uses the GPU of \p who; null where there is none.
  [[nodiscard]] const member* user_of_gpu(const process_identity& who) const;
  void give_place(member& newcomer, const join_request& asked);

  /// It has done its work. Where nobody is left who has not, while the world rebuilds, it has ended well.
  void let_go(members::iterator which, time_point now, control_effects& out);
  void lose(members::iterator which, error why, bool kill, time_point now, control_effects& out);
  /// \p counts: towards the rebuilds within the window.
  void fail_epoch(error why, const std::optional<process_identity>& lost, nanoseconds pause, time_point now,
                  control_effects& out, bool counts = true);
  /// Says, once for each rebuild, which places have no process.
  void want_processes(time_point now, control_effects& out);
  /// Whatever can be done next, is.
  void go_on(time_point now, control_effects& out);
  void fill_places(time_point now);
  void begin_epoch(time_point now, control_effects& out);
  void form(const unique_id& id, time_point now, control_effects& out);
  void quiesce(time_point now, control_effects& out);
  void give_up(error why, control_effects& out);
  /// Takes the time in which this process did not run out of everything that is waited for.
  void forgive_sleep(time_point now);

  // controller_links.cpp: which link is broken, and without whom the world goes on.
  /// \p one has not formed the epoch, because of \p report.
  void on_forming_failed(member& one, const failed_report& report, time_point now, control_effects& out);
  /// All reports have come that will.
  void judge_links(time_point now, control_effects& out);
  [[nodiscard]] std::vector<link_id> choose_side(const std::set<std::pair<rank, rank>>& unreached) const;
  /// Whether the world can form without \p side now; makes these processes stand by if so.
  [[nodiscard]] bool set_aside(const std::vector<link_id>& side, time_point now);
  [[nodiscard]] bool is_cut_off(const member& one, time_point now) const;
  void forget_links_of_ranks();
  [[nodiscard]] static link_name name_link(const process_identity& one, const process_identity& other);
  void announce(control_effects& out, std::optional<process_identity> lost = {}) const;
  void send_to_ranks(const controller_message& what, control_effects& out) const;
  [[nodiscard]] bool in_epoch() const noexcept {
    return phase_ == control_phase::forming || phase_ == control_phase::serving || phase_ == control_phase::quiescing;
  }
  [[nodiscard]] bool all_reported() const;
  [[nodiscard]] std::vector<int> free_places(const process_identity* asker = nullptr) const;
  [[nodiscard]] std::string missing_text() const;

  controller_terms terms_;
  members members_;
  std::map<link_id, error> fenced_; ///< Who is told, if it speaks again, that it is out.
  std::vector<shared_fact> agreed_; ///< Of the first who joined.
  control_phase phase_ = control_phase::gathering;
  epoch epoch_{0};
  int ranks_ = 0;
  bool named_ = false;     ///< The epoch's id has come.
  bool served_ = false;    ///< Once.
  bool some_done_ = false; ///< Since the latest epoch served, a rank of it has left with its work done.
  std::set<int> wanted_;   ///< Places of which want_process has been said in this rebuild.
  error reason_{};
  time_point due_;          ///< Of what the phase waits for.
  time_point not_before_{}; ///< The next epoch.
  time_point spoke_{};      ///< To all, that it is alive.
  std::optional<time_point> detected_{};
  std::deque<time_point> faults_; ///< Within the window.
  time_point ticked_;

  std::set<std::pair<rank, rank>> unreached_; ///< In the epoch that forms: who could not reach whom.
  time_point judged_at_{};                    ///< Where there are some.
  std::set<link_name> suspected_{};           ///< In the forming before this one.
  std::map<link_name, link_retry> broken_{};
  int vain_formings_ = 0; ///< In a row, because of a link that the world cannot do without.
};

} // namespace troupe
