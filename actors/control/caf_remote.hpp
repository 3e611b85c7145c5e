/// Connects actor systems through connected sockets, for both lines of CAF. CAF itself neither listens nor connects:
/// each socket that it gets leads to a TLS proxy. CAF's own ports trust any peer that connects, and every local user
/// can connect to a loopback port (docs/security.md, SEC-2).
#pragma once

#include <troupe/actors/caf/caf_compat.hpp>
#include <troupe/device/file_descriptor.hpp>

#include <caf/actor.hpp>

#include <string>
#include <utility>

namespace troupe::compat {

/// Registers the message types of CAF's I/O module. Call it before the first actor system that uses the functions
/// below.
void register_remote_types();
/// Loads CAF's I/O module into an actor system that uses the functions below.
void load_remote(caf::actor_system_config& settings);

/// Publishes \p whom to the system at the other end of \p connection. Threads: any.
void offer_through(caf::actor_system& system, const caf::actor& target, file_descriptor connection);
/// Returns the actor that the system at the other end of \p connection publishes. Blocks until that system has answered
/// or the connection has ended. Errors: missing (the connection ended, or no actor is published).
[[nodiscard]] caf::actor find_through(caf::actor_system& system, file_descriptor connection);

/// Sends \p bytes from the actor \p self to an actor of another system, whose typed interface is not known here.
/// Messages arrive in the order of sending.
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
