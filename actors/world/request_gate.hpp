/// Where requests to a whole world are let in or refused, by whichever thread brings them.
#pragma once

#include <troupe/actors/world/rcu_pointer.hpp>
#include <troupe/actors/world/world_state.hpp>
#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/operation/validation.hpp>
#include <troupe/collectives/order/arbiter.hpp>
#include <troupe/completion/admission/admission_quota.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// The world's actor says what holds; requests need not wait for its turn, since the order they get is the arbiter's
/// (docs/design/0023-requests-at-the-door.md). Threads: accept() from any, the rest from the actor's.
class request_gate {
public:
  /// What requests are judged by.
  struct terms {
    world_admission admission;
    std::shared_ptr<const std::vector<seat>> seats{}; ///< In rank order; none while nothing is admitted.
    std::shared_ptr<ordered_world> order{};           ///< None while nothing is admitted.
    std::vector<std::shared_ptr<registered_pool>> registered{};
    bool is_ordered_by_callers = false; ///< Requests to single ranks are.
  };

  /// \p devices and \p able are what seats refer to.
  request_gate(std::vector<std::shared_ptr<device>> devices, std::shared_ptr<const capabilities> able,
               nanoseconds default_deadline, std::shared_ptr<admission_quota> pending, terms first);

  void publish(terms now) { terms_.set(std::move(now)); }

  /// Sends \p asked on its way, or delivers to \p reply why not (ONE-1, ORD-2, EPO-1). Never blocks (BLK-1).
  /// \p client: an actor's number; 0: nobody in particular.
  void accept(world_request asked, reply_promise reply, std::uint64_t client = 0) noexcept;

  /// Why all ranks cannot be asked for \p parts, which are in rank order and agree; errc::none where they can.
  [[nodiscard]] error objection_to(const std::vector<operation>& parts) const {
    return objection_to(parts, *terms_.read());
  }

private:
  /// Why not, or counts it among what is pending.
  [[nodiscard]] error admit(const world_request& asked, const terms& now, reply_promise& reply) const;
  [[nodiscard]] error objection_to(const std::vector<operation>& parts, const terms& now) const;
  [[nodiscard]] error objection_to_retry(const std::vector<operation>& parts, const terms& now,
                                         const reply_promise& reply) const;
  /// Counts \p asked among what is pending until \p reply is delivered. Errors: busy.
  [[nodiscard]] error charge(const world_request& asked, reply_promise& reply) const;

  std::vector<std::shared_ptr<device>> devices_;
  std::shared_ptr<const capabilities> able_;
  nanoseconds default_deadline_;
  std::shared_ptr<admission_quota> pending_; ///< What clients may leave pending.
  pending_line_owner line_;                  ///< Of requests to the world.
  rcu_pointer<terms> terms_;
  std::atomic<std::uint64_t> next_{1}; ///< Ticket.
};

} // namespace troupe
