/// What actor systems need in order to talk to each other, for both lines of CAF. CAF neither listens nor connects: it
/// is given connected sockets, whose other ends are a guard's. CAF's own ports would believe whoever connects, and
/// every local user can connect to a port of loopback (docs/security.md, SEC-2).
#pragma once

#include <troupe/actors/caf/caf_compat.hpp>
#include <troupe/actors/transport/guard_socket.hpp>

#include <caf/actor.hpp>

#include <string>
#include <utility>

namespace troupe::compat {

/// Before the first actor system that shall do so.
void register_remote_types();
/// For an actor system that shall do so.
void load_remote(caf::actor_system_config& settings);

/// Offers \p whom to the system at the other end of \p connection. Threads: any.
void offer_through(caf::actor_system& system, const caf::actor& whom, guard_socket connection);
/// The actor that the system at the other end of \p connection offers. Blocks until that has answered or the connection
/// has ended. Errors: missing (the connection ended, or no actor is offered).
[[nodiscard]] caf::actor find_through(caf::actor_system& system, guard_socket connection);

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
