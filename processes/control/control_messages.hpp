/// Defines the messages between a controller and the processes of its world as plain values. control_codec.hpp encodes
/// them.
#pragma once

#include <troupe/actors/world/controller_directives.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/collective_settings.hpp>
#include <troupe/collectives/progress/resume_points.hpp>
#include <troupe/collectives/progress/told_commits.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/processes/control/controller_terms.hpp>
#include <troupe/processes/order/codec/request_codec.hpp>
#include <troupe/processes/order/order_continuation.hpp>
#include <troupe/processes/transport/shared_memory/shared_ring.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe {

/// Identifies one membership of one process with one controller; 0 means no session. It is drawn at random, so that
/// only a process that received it can use it. The session of a process that was declared lost is no longer valid, even
/// if the process sends again (EPO-1).
using session_id = std::uint64_t;

/// A version or setting that must be equal in all processes of a world.
struct shared_fact {
  std::string name;
  std::string value;
};

/// The name of a shared_fact: "yes" if epochs of the processes form beside others, and their order can be held.
inline constexpr std::string_view fact_of_planned_changes = "planned changes";

/// Process → controller: the first message.
struct join_request {
  std::string token{}; ///< The join token, which is never logged (SEC-1).
  process_identity who{};
  std::vector<shared_fact> facts{};
  std::optional<int> place{}; ///< The rank that the launcher assigned to the process, if any.
  /// The size of the world according to the launcher that assigned `place`. 0: it is not known.
  int world_size = 0;
  bool spare = false; ///< Whether it stands by until a place is free. It prefers `place` if that is set.
  /// Number of processes started for this place before it. A process with `attempt` > 0 that finds the place taken
  /// stands by.
  int attempt = 0;
  int local_device = 0; ///< Index of the device that it is to use on its host.
  int device_count = 0; ///< Number of devices on its host.
  epoch last_epoch{};   ///< The latest epoch that it was part of. A restarted controller continues from it.
  std::vector<std::string> last_ranks{}; ///< The names of the processes that were ranks of that epoch.
  epoch begun{};    ///< The latest epoch for which it was asked for its commits. It may be a rank of that epoch.
  epoch prepared{}; ///< The latest epoch that it has prepared or heard of. Its number is not used again.
  nanoseconds last_lease{}; ///< How long its latest lease was granted for. It has given it up (MEM-1).
  /// The epoch that it goes on to serve under its lease, which it has not given up then: see lease_grant::outlasts. 0:
  /// none.
  epoch kept{};
  std::int64_t wall_clock_ns = 0; ///< Send time in nanoseconds since 1970.
  /// The nonce that it has sent to the gate of its host, if there is a gate (order_gate.hpp).
  std::optional<ring_session> nonce{};
};

/// In both directions: the sender is alive. Process → controller: renew the lease, by a lease_grant with this number.
struct heartbeat {
  std::uint64_t number = 0; ///< Counted from 1 in each session; 0 from the controller.
};
/// Process → controller: the unique id for forming epoch `of`, as requested by id_wanted.
struct id_offer {
  epoch of;
  unique_id id{};
};
/// In both directions: the process sends requests of its rank for the common order; the controller sends the decisions.
/// Between the controller and the order service of another host: a host_frame.
struct order_batch {
  epoch of;
  std::string bytes;
};

/// Process that is not a member of the world → controller: the first message. The process is a driver, which sends
/// requests to the ranks, or the order service of another host.
struct attach_request {
  std::string token{}; ///< As in join_request.
  process_identity who{};
  bool is_order_service = false;
  std::optional<ring_session> nonce{}; ///< Set by drivers only, as in join_request.
};
/// Order service of another host → controller, the answer to serve_directive. Also sent by a service that has joined
/// another controller while it serves all ranks of the world, or has stopped doing so for a change that the former one
/// had begun (then without ranks).
struct serving_report {
  epoch of;
  std::vector<rank> ranks{}; ///< The ranks that have rings; empty if it serves none.
  /// Set if `ranks` are all ranks of the world: the value of formation_directive::resume, which only this service
  /// knows.
  std::shared_ptr<const resume_points> resume{};
  /// To another controller: the drivers of earlier ones whose requests the ranks may still submit. Their ranks' empty
  /// messages to each of them follow (order_server::retiring()).
  std::vector<process_address> retiring{};
};

/// Process → controller: the process, which has joined, has connected to the gate of its host: there was none before,
/// or the earlier one was closed. It can have rings from the next epoch on.
struct gate_notice {
  ring_session nonce{}; ///< As in join_request.
};

/// Process or driver → controller: change the ranks, and answer with a change_reply. Numbers are those of the session.
struct change_request {
  std::uint64_t number = 0;
  rank_change what{};
};
/// Order service of another host → controller: the process that has sent this nonce to the gate of that host has closed
/// its connection to it. A process does so when it ends, and after it has given up its lease if it cannot use that
/// connection any more. One that only looks for another controller keeps it.
struct gate_closed {
  ring_session nonce{}; ///< As in join_request.
};

/// Process or driver → controller, after hold_wanted or world_report::is_held: its requests to the whole world in epoch
/// `of` have been answered. `next` tells for which attempt to begin another epoch.
struct held_notice {
  epoch of;
  epoch next;
};

/// Order service of another host → controller, the answer to hold_order_directive.
struct order_held_report {
  epoch of;
  epoch next;
  bool is_held = false; ///< If not, the service goes on as if it had not been asked (order_server::hold()).
};

using process_message = std::variant<join_request, heartbeat, id_offer, commits_report, formed_report, failed_report,
                                     drained_report, order_batch, leave_notice, attach_request, serving_report,
                                     gate_notice, held_notice, gate_closed, change_request, order_held_report>;

/// Controller → process: the process has been admitted.
struct join_welcome {
  session_id session = 0;
  nanoseconds heartbeat{};
  nanoseconds suspicion{};    ///< Silence after which either side considers the other lost.
  bool is_spare = false;      ///< The process stands by until a place is free, for an unlimited time.
  bool grants_leases = false; ///< Whether the process serves only while it has been sent a lease_grant.
  /// Whether another controller takes over when this one is lost: its members wait for it.
  bool has_successors = false;
  epoch latest{}; ///< The latest epoch that the controller knows: see join_request::prepared.
};
/// Controller → rank of epoch `of`: it may serve in this epoch for `length` after it has sent the heartbeat `number`,
/// or, if that is 0, its join_request. Only the process's own clock measures that, so no clocks are compared (MEM-1).
struct lease_grant {
  epoch of;
  std::uint64_t number = 0;
  nanoseconds length{};
  /// Whether the process keeps the lease when it loses its connection, because the epoch goes on under another
  /// controller: the order of its requests is not decided by this one (docs/design/0119-controller-store.md).
  bool outlasts = false;
};
/// Controller → process: the process may not join, for the reason `why`.
struct join_refusal {
  error why;
};
/// Controller → rank 0 of the epoch that is to form: send an id_offer.
struct id_wanted {
  epoch of;
};

/// Controller → order services of other hosts: a process that has sent this nonce to the gate of its host has joined.
struct claim_directive {
  ring_session nonce{};
};
/// Controller → order services of other hosts: an epoch is about to form. Give rings to those candidates whose
/// processes have connected to your gate, if there are at least two, and answer with a serving_report.
struct serve_directive {
  struct candidate {
    rank self{0};
    ring_session nonce{};
  };
  epoch of;
  int world_size = 1;
  epoch previous{}; ///< The last epoch, if this service served in it; else 0 (order_server::open_host()).
  sequencer_limits limits{};
  told_commits told{}; ///< The last complete commits that the controller knows.
  std::vector<candidate> candidates{};
  /// Set after an order_held_report of epoch `previous`: the service gives rings to all ranks and goes on with their
  /// order, or it serves none.
  order_continuation continued{};
};
/// Controller → the order service that decides the order of all ranks in epoch `of`, which change as planned: stop
/// deciding, and answer with an order_held_report. `next` tells for which attempt to begin another epoch.
struct hold_order_directive {
  epoch of;
  epoch next;
};

/// Controller → process without a rank: the state of the world, at first and when it changes.
struct world_report {
  epoch of;              ///< 0 before the first epoch.
  int world_size = 0;    ///< The number of ranks in this epoch.
  int address = 0;       ///< The process's address in this epoch's order, negative; 0 while there is no order.
  bool is_ready = false; ///< The ranks serve requests in this epoch.
  /// The world changes its ranks as planned: hold requests that come from now on until the next report, and answer with
  /// a held_notice for epoch `next` when those before have been answered. What else the report says is to be ignored.
  bool is_held = false;
  epoch next{};
  bool is_over = false;   ///< The world has ended, because of `reason`; errc::stopping: without a fault.
  bool has_rings = false; ///< Whether it has been sent rings for its requests in this epoch.
  error reason{};         ///< Why the world is not ready, or why the previous epoch ended.
  std::shared_ptr<const resume_points> resume{}; ///< As in formation_directive.
};

/// Controller → process or driver: the answer to a change_request.
struct change_reply {
  std::uint64_t number = 0;
  error why{};                 ///< errc::none if the change is done.
  world_processes processes{}; ///< Set if it is.
};

/// Controller → process: hold_directive, for the attempt to begin epoch `next`, which the held_notice must name.
struct hold_wanted {
  epoch of;
  epoch next;
};

using controller_message =
    std::variant<join_welcome, join_refusal, heartbeat, id_wanted, commits_wanted, formation_directive,
                 failure_directive, quiesce_directive, order_batch, fence_notice, stop_directive, claim_directive,
                 serve_directive, world_report, lease_grant, prepare_directive, hold_wanted, drop_directive,
                 change_reply, hold_order_directive>;

} // namespace troupe
