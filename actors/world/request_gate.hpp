/// Admits or refuses requests to a whole world, on the thread that sends the request.
#pragma once

#include <troupe/actors/world/rcu_pointer.hpp>
#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/operation/validation.hpp>
#include <troupe/collectives/order/arbiter.hpp>
#include <troupe/collectives/order/remote_ranks.hpp>
#include <troupe/completion/admission/admission_quota.hpp>
#include <troupe/device/process_mark.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// The part of a world's state that decides about requests.
struct world_admission {
  error refusal{}; ///< The error for every request; errc::none if the world is ready.
  troupe::epoch epoch{};
  int world_size = 1;
  std::size_t local_count = 0;
  int began_with = 1;     ///< Number of ranks of the first epoch.
  troupe::epoch since{};  ///< See world_state::unbroken_since(): requests for a later epoch are for the present one.
  bool has_peers = false; ///< Whether requests also reach ranks of other processes.

  /// Returns errc::none if \p asked may be sent to the ranks, else the reason for the refusal.
  [[nodiscard]] error objection_to(const world_request& asked) const;
};

/// Returns errc::none if a request that names epoch \p meant_for is for epoch \p now of a world. A request to the whole
/// world that names no epoch is for the present one.
[[nodiscard]] error epoch_objection(epoch meant_for, epoch now);

/// Admits requests under the conditions that the world's actor publishes. Requests do not wait for that actor, because
/// the arbiter determines their order (docs/design/0023-admission-on-the-sending-thread.md). It may outlive the world:
/// it then refuses every request, as in a fork. Threads: accept() from any, publish() and close() from one at a time.
class request_gate {
public:
  /// The conditions for requests.
  struct terms {
    world_admission admission;
    /// The ranks' contexts in rank order, which keep alive the objects that they refer to; null while no request is
    /// admitted.
    std::shared_ptr<const std::vector<rank_context>> contexts{};
    /// The order of requests; null while no request is admitted, and if not all ranks live in this process.
    std::shared_ptr<ordered_world> order{};
    local_names here{};                    ///< What requests can name in this process.
    std::shared_ptr<remote_ranks> peers{}; ///< Sends requests to the ranks, if not all of them live in this process.
    std::vector<std::shared_ptr<registered_pool>> registered{};
  };

  request_gate(nanoseconds default_deadline, std::shared_ptr<admission_quota> pending, terms first);

  void publish(terms now) { terms_.set(std::move(now)); }
  /// Ends the gate with its world: releases the order and the devices, and refuses every request for the reason
  /// published last, or with errc::stopping.
  void close();

  /// Submits \p asked, or delivers the reason for a refusal to \p reply (ONE-1, ORD-2, EPO-1). Never blocks (BLK-1).
  /// \p client: the number of the requesting actor; 0: no actor.
  void accept(world_request asked, reply_promise reply, std::uint64_t client = 0) noexcept;

  /// Asks the process of \p target for the handle of memory that it has exported under \p name.
  void find(rank target, const std::string& name, nanoseconds deadline, remote_ranks::handle_promise reply) const;

  /// Returns why \p parts cannot be sent to all ranks; errc::none if they can. They must be in rank order and agree.
  [[nodiscard]] error objection_to(const std::vector<operation>& parts) const {
    return objection_to(parts, *terms_.read());
  }

private:
  /// Returns why \p asked is refused, or counts it as pending.
  [[nodiscard]] error admit(world_request& asked, const terms& now, reply_promise& reply) const;
  [[nodiscard]] error objection_to(const std::vector<operation>& parts, const terms& now) const;
  /// Counts \p asked as pending until \p reply is delivered. Errors: busy.
  [[nodiscard]] error charge(const world_request& asked, reply_promise& reply) const;

  nanoseconds default_deadline_;
  std::shared_ptr<admission_quota> pending_; ///< The quota of pending requests of the world's clients.
  pending_line_owner line_;                  ///< The line of requests to the whole world.
  const process_mark made_;
  rcu_pointer<terms> terms_;
  std::atomic<std::uint64_t> next_{1}; ///< The next ticket.
};

} // namespace troupe
