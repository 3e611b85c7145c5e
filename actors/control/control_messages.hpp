/// What a controller and the processes of its world say to each other. Plain values: control_codec.hpp has their bytes.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace troupe {

/// Both ends must speak the same one.
inline constexpr std::uint32_t control_protocol = 1;

/// One stay of one process with one controller. Drawn at random, so that whoever was not given it cannot speak for the
/// process; 0: none. A process that was declared lost and speaks again has a session that is no longer known (EPO-1).
using session_id = std::uint64_t;

/// Which process it is, for people and for whoever started it.
struct process_identity {
  std::string name{}; ///< As its launcher calls it: "0", "s1"; else its host and process id.
  std::string host{};
  std::int64_t pid = 0;
  std::string gpu{}; ///< Of its rank: the device's own name on that host; empty for a pretend one.
};
[[nodiscard]] std::string describe(const process_identity& who);

/// Something that all processes of a world must have alike: a version, a setting.
struct shared_fact {
  std::string name;
  std::string value;
};

/// Process → controller, first of all.
struct join_request {
  std::uint32_t protocol = control_protocol;
  std::string token{}; ///< Never logged (SEC-1).
  process_identity who{};
  std::vector<shared_fact> facts{};
  std::optional<int> place{}; ///< The rank it was started as, where somebody has said so.
  bool spare = false;         ///< Stands by until a place is free: that one rather than another, where it has one.
  int attempt = 0;      ///< It follows so many that were started for this place: one that finds it taken stands by.
  int local_device = 0; ///< That it is to use,
  int device_count = 0; ///< of so many there.
  epoch last_epoch{};   ///< The latest that it has been part of: a controller that starts anew goes on from there.
  std::int64_t wall_clock_ns = 0; ///< Since 1970, when it was sent.
};

/// Process → controller: it lives.
struct heartbeat {};
/// Process → controller: names the forming of `of`, as was asked.
struct id_offer {
  epoch of;
  unique_id id{};
};
/// The process's rank has formed `of`.
struct formed_report {
  epoch of;
};
/// The process's rank failed in `of`, while it formed or later.
struct failed_report {
  epoch of;
  error why;
  std::vector<rank> blamed{}; ///< Whom its own report of the fault names.
};
/// After quiesce_order: nothing is in flight here.
struct drained_report {
  epoch of;
};
/// Requests of its rank on their way to the one order, or, from the controller, what has come of them.
struct order_batch {
  epoch of;
  std::string bytes;
};
/// The process goes, because of `why`; errc::none: it has done its work.
struct leave_notice {
  error why;
};

using process_message = std::variant<join_request, heartbeat, id_offer, formed_report, failed_report, drained_report,
                                     order_batch, leave_notice>;

/// Controller → process: it is one of the world's.
struct join_welcome {
  session_id session = 0;
  nanoseconds heartbeat{};
  nanoseconds suspicion{}; ///< Silence after which either takes the other for lost.
};
/// The process may not join, and why.
struct join_refusal {
  error why;
};
/// To rank 0 of the epoch that is to form.
struct id_wanted {
  epoch of;
};
/// Form this epoch. What went before is failed with `reason`, if it has not been yet.
struct formation_order {
  epoch of;
  rank self;
  int world_size = 1;
  unique_id id{};
  error reason{};                   ///< Of the epoch before; errc::none for the first.
  bool has_newcomers = false;       ///< Some process was not part of the epoch before.
  std::vector<std::string> hosts{}; ///< Of each rank.
};
/// The epoch has failed somewhere: nothing of it that is unanswered has a known outcome.
struct failure_order {
  epoch of;
  error why;
};
/// Take no more requests, finish what is in flight, and say so: another epoch follows without a fault.
struct quiesce_order {
  epoch of;
  error why; ///< What whoever asks meanwhile is told.
};
/// The process is no longer of the world: its session has ended.
struct fence_notice {
  error why;
};
/// The world ends: well where `why` is errc::stopping.
struct stop_order {
  error why;
};

using controller_message = std::variant<join_welcome, join_refusal, heartbeat, id_wanted, formation_order,
                                        failure_order, quiesce_order, order_batch, fence_notice, stop_order>;

} // namespace troupe
