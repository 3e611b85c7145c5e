/// What actor systems need in order to talk to each other, for both lines of CAF. Loopback alone: what is to cross
/// hosts goes through a guard (docs/security.md).
#pragma once

#include <troupe/actors/caf_compat.hpp>

#include <caf/actor.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace troupe::compat {

/// Before the first actor system that shall do so.
void register_remote_types();
/// For an actor system that shall do so.
void load_remote(caf::actor_system_config& settings);

/// Offers \p whom to other systems at a port of 127.0.0.1; 0: any. Returns the port. Errors: invalid_argument (it is in
/// use).
[[nodiscard]] std::uint16_t publish_on_loopback(caf::actor_system& system, const caf::actor& whom, std::uint16_t port);
/// Who is offered at that port. Blocks while it connects. Errors: missing (nobody is).
[[nodiscard]] caf::actor find_on_loopback(caf::actor_system& system, std::uint16_t port);

/// From an actor to one of another system, whose interface is not known here; in the sender's order.
template <class Self>
void send_to_remote(Self* self, const caf::actor& to, std::string bytes) {
  auto sender = caf::actor_cast<caf::strong_actor_ptr>(self);
#if TROUPE_CAF_0_17
  auto element = caf::make_mailbox_element(std::move(sender), caf::make_message_id(), caf::no_stages, std::move(bytes));
#else
  auto element = caf::make_mailbox_element(std::move(sender), caf::make_message_id(), std::move(bytes));
#endif
  caf::actor_cast<caf::abstract_actor*>(to)->enqueue(std::move(element), nullptr);
}

} // namespace troupe::compat
