/// Defines the plan of one simulated run: the requests with their times, and the faults. A seed determines all of it.
/// It is plain data, so that a failing run can be shortened and repeated.
#pragma once

#include <troupe/actors/world/recovery/recovery_terms.hpp>
#include <troupe/collectives/pipeline/fusion_composer.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/sources/completion_source.hpp>
#include <troupe/device/enum_names.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/processes/control/controller_terms.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace troupe::simulation {

using troupe::to_string;

enum class fault_kind : std::uint8_t {
  withheld,     ///< A rank's launches no longer reach its device: its peers wait indefinitely.
  refused,      ///< A launch call fails.
  stuck_launch, ///< A launch call takes very long to return.
  slow_rank,    ///< Launches of one rank take longer: the rank is reported, not killed.
  asynchronous, ///< The communicator reports an asynchronous error.
  device,       ///< The device reports an error that is not sticky.
  sticky,       ///< The device reports a sticky error, which poisons the process.
  failed_init,  ///< A rank cannot form its communicator.
  stuck_init,   ///< The call that forms a rank's communicator takes very long to return.
  slow_abort,   ///< An abort takes long, possibly beyond its deadline.
  ended_actor,  ///< A rank's actor is killed.
  ended_client, ///< A client dies with requests pending.
  jump,         ///< The clock jumps, as after a suspended machine resumes.
  // Only in runs with actors:
  killed_world,  ///< The world's actor is killed.
  dropped_world, ///< The last handle to the world is released.
  // Only in worlds over processes:
  killed_process,  ///< A process is killed, and another one started in its place.
  stopped_process, ///< A process does not run for a while. Its GPU does.
  cut_link,        ///< The connection between a process and the controller breaks.
  slow_link,       ///< The messages of such a connection arrive late.
  lost_controller, ///< The controller is killed. Another one takes its place if processes wait for it.
  killed_service,  ///< The order service of a rank's host is killed, and another one started in its place.
  stopped_service, ///< The order service of a rank's host does not run for a while.
  cut_service,     ///< The connection between that service and the controller breaks.
  /// No message passes between a process and the controller, in one direction or in both, and none of them is lost.
  partition,
  suspended_host,     ///< The processes and the order service of a rank's host do not run for a while. Its GPUs do.
  stopped_controller, ///< The controller does not run for a while.
  drift,              ///< The clocks of all hosts and of the controller run apart, and show different times.
  boot_jump,          ///< The boot clock of a rank's host jumps ahead, without a suspension.
  slow_reader,        ///< A process and the controller read their messages slowly.
  long_link,          ///< The messages between a rank's process and the controller take long, each another time.
  // Only where a controller stands by:
  unreachable_store, ///< The store of the controllers answers none of them for a while.
  cut_store,         ///< It does not answer the controller that decides.
};
/// The kinds of faults that every simulation supports.
inline constexpr std::array all_fault_kinds{fault_kind::withheld,   fault_kind::refused,      fault_kind::stuck_launch,
                                            fault_kind::slow_rank,  fault_kind::asynchronous, fault_kind::device,
                                            fault_kind::sticky,     fault_kind::failed_init,  fault_kind::stuck_init,
                                            fault_kind::slow_abort, fault_kind::ended_actor,  fault_kind::ended_client,
                                            fault_kind::jump};
/// The kinds of faults in worlds over processes. Sticky errors are left out: they would poison the simulated devices of
/// all processes.
inline constexpr std::array process_fault_kinds{fault_kind::withheld,
                                                fault_kind::refused,
                                                fault_kind::stuck_launch,
                                                fault_kind::slow_rank,
                                                fault_kind::device,
                                                fault_kind::asynchronous,
                                                fault_kind::failed_init,
                                                fault_kind::stuck_init,
                                                fault_kind::slow_abort,
                                                fault_kind::ended_actor,
                                                fault_kind::ended_client,
                                                fault_kind::jump,
                                                fault_kind::killed_process,
                                                fault_kind::stopped_process,
                                                fault_kind::cut_link,
                                                fault_kind::slow_link,
                                                fault_kind::lost_controller,
                                                fault_kind::killed_service,
                                                fault_kind::stopped_service,
                                                fault_kind::cut_service,
                                                fault_kind::partition,
                                                fault_kind::suspended_host,
                                                fault_kind::stopped_controller,
                                                fault_kind::drift,
                                                fault_kind::boot_jump,
                                                fault_kind::slow_reader,
                                                fault_kind::long_link,
                                                fault_kind::unreachable_store,
                                                fault_kind::cut_store};
/// Returns whether \p one keeps a process and its controller apart, while both may live.
[[nodiscard]] constexpr bool separates(fault_kind one) noexcept {
  return one == fault_kind::partition || one == fault_kind::suspended_host || one == fault_kind::stopped_controller;
}
/// Returns whether \p one is a fault of an order service.
[[nodiscard]] constexpr bool is_of_service(fault_kind one) noexcept {
  return one == fault_kind::killed_service || one == fault_kind::stopped_service || one == fault_kind::cut_service;
}
/// Returns whether \p one is a fault of a clock or of a connection's speed. Such faults are drawn by themselves.
[[nodiscard]] constexpr bool is_of_time(fault_kind one) noexcept {
  return one == fault_kind::drift || one == fault_kind::boot_jump || one == fault_kind::slow_reader ||
         one == fault_kind::long_link;
}
/// Returns whether \p one is a fault of the controllers' store.
[[nodiscard]] constexpr bool is_of_store(fault_kind one) noexcept {
  return one == fault_kind::unreachable_store || one == fault_kind::cut_store;
}
[[nodiscard]] std::string_view to_string(fault_kind kind) noexcept;
/// Parses "all", or names of \p kinds separated by commas. Errors: invalid_argument, listing the valid names.
[[nodiscard]] std::vector<fault_kind> parse_fault_kinds(std::string_view names,
                                                        std::span<const fault_kind> kinds = all_fault_kinds);

/// The steps of a planned change that a fault may wait for (docs/design/0117-planned-change.md).
enum class change_step : std::uint8_t {
  preparing, ///< A process is told to form the next epoch.
  stopping,  ///< The order is held, and the ranks finish what was released.
  switching, ///< The next epoch begins.
};

struct planned_fault {
  std::size_t number = 0; ///< Identifies the fault.
  fault_kind kind{};
  nanoseconds at{};   ///< The fault occurs at the first suitable call of its rank from this time on.
  rank where{};       ///< The rank with the fault. All ranks here are numbered as in the first epoch.
  nanoseconds span{}; ///< The duration of a fault that takes long.
  /// For a suspended host or a stopped controller: its machine is suspended, whose steady clock stands still.
  bool stops_clock = false;
  std::int64_t drift_ppm = 0; ///< For a drift: by at most how many millionths each clock is too fast or too slow.
  /// For a fault of a process or of the controller: it occurs `at` after the next planned change has
  /// reached this step.
  std::optional<change_step> during{};
};

enum class operation_kind : std::uint8_t {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  group, ///< Two all_reduces, one of the first element and one of the rest.
  barrier,
  exchange,     ///< A group of two: every rank sends to the next and receives from the previous one, in a ring.
  transfer,     ///< A send by the root and a recv by the next rank. No other rank takes part.
  copy,         ///< Each rank copies from the memory of the previous rank to its own.
  registration, ///< Not an operation, but a request to register memory.
  capture,      ///< Not an operation, but a request to capture a plan.
  replay,       ///< The replay of such a plan.
  agree,        ///< Each rank contributes one integer, by a rule that follows from the number of the request.
};
inline constexpr std::size_t operation_kind_count = static_cast<std::size_t>(operation_kind::agree) + 1;

struct planned_request {
  std::size_t number = 0; ///< Identifies the request.
  /// The lane in which each rank's client makes the request. Empty: the request goes to the world.
  std::optional<std::size_t> lane{};
  /// The planned_split to whose sub-world the request goes, in a lane of that world. Empty: to the whole world.
  std::optional<std::size_t> split{};
  nanoseconds at{};
  /// The ranks' clients make the request late by up to this time. For a capture: only over processes.
  nanoseconds jitter{};
  operation_kind what{};
  std::size_t count = 1;
  rank root{}; ///< The root. If that rank has left the world, another rank is chosen.
  nanoseconds deadline{};
  /// This rank makes no request in the lane from this one on, until the epoch ends. For a capture over processes: its
  /// process takes no part, so the others' turn is refused.
  std::optional<rank> silent{};
  std::optional<rank> disagreeing{}; ///< This rank requests one element less, or names another rule of an agree.
  std::optional<rank> objecting{};   ///< This rank contributes more to an agree than is allowed.
  std::optional<rank> cancelling{};  ///< This rank withdraws its request.
  /// For a barrier in a lane: it is a commit with this number. Later commits of a lane have larger numbers.
  std::optional<std::uint64_t> commit{};
  /// The memory of this rank is declared to be on another device. Only for requests to the world.
  std::optional<rank> foreign{};
  /// The registration whose memory the request uses, if that is complete by then. For a replay: the capture that made
  /// its plan.
  std::optional<std::size_t> source{};
  /// For a request in registered memory: its memory is freed when the request is done. For a replay: the client
  /// releases the plan right after the request.
  bool gives_back = false;
  bool of_requests = false; ///< For a capture: whether the plan consists of requests, not of a function.
  bool throws = false;      ///< For a capture: whether its function may throw.
};

/// A client that reserves quota of its process's world, holds it for a while, and returns it.
struct planned_credit {
  std::size_t number = 0; ///< Identifies it.
  nanoseconds at{};
  rank where{}; ///< Its process.
  std::size_t operations = 1;
  nanoseconds deadline{};
  nanoseconds span{}; ///< The time for which it holds the quota.
};

/// A sub-world that the processes split off the whole world. It is split off again in its present form when the world
/// has changed its size.
struct planned_split {
  std::size_t number = 0;
  nanoseconds at{};
  std::vector<rank> members{}; ///< In the order of their numbers in the sub-world.
  /// From this time on each member's client stops it, late by up to planned_split::jitter. When it has ended everywhere
  /// it is split off again.
  std::optional<nanoseconds> stops_at{};
  nanoseconds jitter{};
};

/// Who asks for a planned change.
enum class change_asker : std::uint8_t {
  controller, ///< The program of the controller.
  driver,
  process, ///< The process of the rank that leaves, or of a rank of the host that is drained.
  stranger ///< A peer that has not been admitted. Nothing may change (SEC-2).
};

/// A planned change of a world over processes: a process leaves it, or all of a host, and one is asked for again.
struct planned_departure {
  std::size_t number = 0; ///< Identifies it.
  nanoseconds at{};
  rank where{};          ///< The rank, as numbered in the first epoch, whose place is meant, or whose host.
  bool is_drain = false; ///< Whether all processes of the host leave.
  change_asker by{};
  bool renumbers = true; ///< Whether it allows other numbers of the ranks that stay.
  /// The time from the departure until a process is asked for. Empty: none is asked for.
  std::optional<nanoseconds> span{};
  bool is_in_vain = false; ///< No process is started then.
};

/// The time limits of a run. They are far shorter than in production, so that a run ends soon.
struct simulated_limits {
  nanoseconds hang{std::chrono::milliseconds{50}};
  nanoseconds launch{std::chrono::milliseconds{50}};
  nanoseconds form{std::chrono::milliseconds{200}};
  nanoseconds abort{std::chrono::milliseconds{100}};
  nanoseconds drain{std::chrono::milliseconds{300}};
  nanoseconds release{std::chrono::milliseconds{100}};
};

/// The terms of a world over processes.
struct process_terms {
  orphan_policy orphans = orphan_policy::leave; ///< With leave, a launcher ends and restarts processes.
  bool stops_by_itself = false;                 ///< Whether the processes leave the world one by one at its end.
  /// Whether a killed process is replaced only when the controller asks for it, not by the launcher itself.
  bool replaces_wanted = false;
  std::size_t pending_operations = 0; ///< Limit of the pending requests of each world; 0: that of production.
  int hosts = 0; ///< The number of hosts, among which the processes are divided; 0: each has two processes.
  /// Whether a process under a launcher ends at SIGTERM, as by default; else it stops its world.
  bool ends_at_sigterm = false;
  /// Whether the manager that starts processes again says that it does (TROUPE_ATTEMPT).
  bool counts_attempts = true;
  /// Whether each host has an order service (troupe order-service).
  bool has_services = false;
  /// one_shot_bytes of all processes: kernels where all ranks of an epoch have one order service.
  std::size_t one_shot_bytes = 0;
  bool plans_changes = false; ///< control.planned_changes of all processes.
  int spares = 0;             ///< So many of the processes, the last ones, stand by at first.
  bool has_standby = false;   ///< Whether there are two controllers with a store, one of which stands by.
};

struct scenario {
  std::uint64_t seed = 0;
  int ranks = 0;
  std::size_t lanes = 0;
  completion_strategy strategy{};
  fusion fused{};
  simulated_limits limits{};
  recovery_terms recovery{};
  nanoseconds length{};           ///< All requests are made within this time.
  std::size_t one_shot_bytes = 0; ///< The setting of that name; 0 in worlds over processes.
  bool stops_busy = false;        ///< Whether the world is stopped after the last request, before all answers.
  std::vector<planned_request> requests{};
  std::vector<planned_fault> faults{};
  std::vector<planned_credit> credits{};       ///< Only over processes.
  std::vector<planned_split> splits{};         ///< Only over processes.
  std::vector<planned_departure> departures{}; ///< Only of draw_changing_scenario().
  std::optional<process_terms> processes{};    ///< Set: each rank lives in a process of its own.
};

[[nodiscard]] scenario draw_scenario(std::uint64_t seed, int ranks, const std::vector<fault_kind>& kinds);
/// Draws a scenario of a world over processes. A driver sends the requests to the whole world. No request registers
/// memory. \p hosts: see process_terms.
[[nodiscard]] scenario draw_process_scenario(std::uint64_t seed, int ranks, const std::vector<fault_kind>& kinds,
                                             int hosts = 0);
/// Draws a scenario of a world over processes whose ranks change as planned. All requests are sums and barriers in
/// lanes, which every rank makes, so that the client of a process that joins knows from the number of complete
/// operations which are next. Faults that let a client miss requests are left out. Others occur at steps of the
/// changes. \p has_standby: with what draw_standby_scenario() adds, but faults of order services at those steps only.
[[nodiscard]] scenario draw_changing_scenario(std::uint64_t seed, int ranks, const std::vector<fault_kind>& kinds,
                                              int hosts = 0, bool has_standby = false);
/// Draws a scenario of a world over processes with a controller that stands by, and faults of the one that decides and
/// of their store. In half of the runs without \p hosts all processes are on one host, whose order service outlives
/// controllers.
[[nodiscard]] scenario draw_standby_scenario(std::uint64_t seed, int ranks, const std::vector<fault_kind>& kinds,
                                             int hosts = 0);
/// Returns whether \p fault may bring another controller.
[[nodiscard]] bool may_replace_controller(const scenario& of, const planned_fault& fault) noexcept;
/// Returns the number of ranks that the world is to have.
[[nodiscard]] inline int world_size_of(const scenario& of) noexcept {
  return of.ranks - (of.processes ? of.processes->spares : 0);
}
/// Returns the host of the process that is started as \p place, and the number of hosts.
[[nodiscard]] int host_of(const scenario& of, int place) noexcept;
[[nodiscard]] inline int host_count(const scenario& of) noexcept {
  return host_of(of, of.ranks - 1) + 1;
}

/// A random generator that gives the same numbers for a seed on every platform.
class prng {
public:
  explicit prng(std::uint64_t seed) noexcept : state_{seed} {}
  [[nodiscard]] std::uint64_t next() noexcept;
  /// Returns a number below \p end, which is not 0.
  [[nodiscard]] std::size_t below(std::size_t end) noexcept { return static_cast<std::size_t>(next() % end); }
  [[nodiscard]] bool one_in(std::size_t many) noexcept { return below(many) == 0; }
  [[nodiscard]] nanoseconds within(nanoseconds longest) noexcept {
    return nanoseconds{static_cast<nanoseconds::rep>(next() % static_cast<std::uint64_t>(longest.count() + 1))};
  }

private:
  std::uint64_t state_;
};

/// Returns a hash of three numbers, the same on every platform.
[[nodiscard]] std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c = 0) noexcept;

} // namespace troupe::simulation
