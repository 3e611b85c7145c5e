/// Admits or refuses requests to a whole world on the thread that sends them.
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

/// The world's actor publishes the conditions. Requests do not wait for that actor, because the arbiter determines
/// their order (docs/design/0023-requests-at-the-door.md). Threads: accept() from any, the rest from the actor's.
class request_gate {
public:
  /// The conditions for requests.
  struct terms {
    world_admission admission;
    std::shared_ptr<const std::vector<seat>> seats{}; ///< In rank order; null while nothing is admitted.
    std::shared_ptr<ordered_world> order{};           ///< Null while nothing is admitted.
    std::vector<std::shared_ptr<registered_pool>> registered{};
    bool is_ordered_by_callers = false; ///< Whether the callers order requests to single ranks.
  };

  /// \p devices and \p able are referenced by the seats.
  request_gate(std::vector<std::shared_ptr<device>> devices, std::shared_ptr<const capabilities> able,
               nanoseconds default_deadline, std::shared_ptr<admission_quota> pending, terms first);

  void publish(terms now) { terms_.set(std::move(now)); }

  /// Submits \p asked, or delivers the reason for a refusal to \p reply (ONE-1, ORD-2, EPO-1). Never blocks (BLK-1).
  /// \p client: an actor's number; 0: no particular client.
  void accept(world_request asked, reply_promise reply, std::uint64_t client = 0) noexcept;

  /// Returns why \p parts, which are in rank order and agree, cannot be sent to all ranks; errc::none if they can.
  [[nodiscard]] error objection_to(const std::vector<operation>& parts) const {
    return objection_to(parts, *terms_.read());
  }

private:
  /// Returns why \p asked is refused, or counts it as pending.
  [[nodiscard]] error admit(const world_request& asked, const terms& now, reply_promise& reply) const;
  [[nodiscard]] error objection_to(const std::vector<operation>& parts, const terms& now) const;
  [[nodiscard]] error objection_to_retry(const std::vector<operation>& parts, const terms& now,
                                         const reply_promise& reply) const;
  /// Counts \p asked as pending until \p reply is delivered. Errors: busy.
  [[nodiscard]] error charge(const world_request& asked, reply_promise& reply) const;

  std::vector<std::shared_ptr<device>> devices_;
  std::shared_ptr<const capabilities> able_;
  nanoseconds default_deadline_;
  std::shared_ptr<admission_quota> pending_; ///< The quota of pending requests of the world's clients.
  pending_line_owner line_;                  ///< For requests to the whole world.
  rcu_pointer<terms> terms_;
  std::atomic<std::uint64_t> next_{1}; ///< The next ticket.
};

} // namespace troupe
