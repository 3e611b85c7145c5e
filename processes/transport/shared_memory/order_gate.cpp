#include <troupe/device/error.hpp>
#include <troupe/processes/transport/shared_memory/order_gate.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

namespace troupe {

namespace {

/// The message that a process sends when it has connected.
struct gate_greeting {
  static constexpr std::uint64_t right_magic = 0x45544147'52555254U; // "TRURGATE"

  std::uint64_t magic = right_magic;
  ring_session nonce{};
};
static_assert(sizeof(gate_greeting) == 24);

constexpr int pending_connections = 128; ///< Limit of the kernel's queue. A process that finds it full uses no rings.

std::string address_of(std::uint16_t port) {
  return "troupe-order-" + std::to_string(port);
}

/// Reads the greeting if it has arrived. Returns whether the connection is kept. Descriptors that come with it are
/// dropped by the kernel, because no room is given for them.
bool read_greeting(const file_descriptor& socket, std::optional<ring_session>& nonce) noexcept {
  gate_greeting said;
  const ssize_t size = ::recv(socket.native(), &said, sizeof said, MSG_DONTWAIT | MSG_TRUNC);
  if (size < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  if (size != sizeof said || said.magic != gate_greeting::right_magic) return false;
  nonce = said.nonce;
  return true;
}

} // namespace

order_gate::order_gate(std::uint16_t port, const gate_limits& limits)
  : listener_{listen_locally(address_of(port), pending_connections)}, unclaimed_{limits} {
  if (listener_) return;
  throw_system_error(errc::unsupported, "bind",
                     "the Unix socket @" + address_of(port) +
                         ", at which processes of this host get rings in shared memory, cannot be opened");
}

void order_gate::drain(time_point now) {
  unclaimed_.expire(now);
  // Bounded, so that a process that connects again and again cannot occupy the controller.
  for (int i = 0; i < pending_connections; ++i) {
    file_descriptor one = accept_locally(listener_);
    if (!one) break;
    if (is_of_this_user(one)) unclaimed_.add(std::move(one), now);
  }
  unclaimed_.look(read_greeting);
}

std::optional<gate_connection> order_gate::claim(const ring_session& nonce, time_point now) {
  drain(now);
  auto found = unclaimed_.claim(nonce);
  if (!found) return std::nullopt;
  return gate_connection{*std::move(found), nonce};
}

bool has_left(const gate_connection& one) noexcept {
  pollfd socket{one.socket.native(), POLLRDHUP, 0};
  return ::poll(&socket, 1, 0) > 0;
}

std::optional<gate_connection> knock_at_gate(std::uint16_t port) noexcept {
  try {
    gate_connection made{connect_locally(address_of(port)), ring_session::make()};
    if (!made.socket) return std::nullopt;
    const gate_greeting said{.nonce = made.nonce};
    if (::send(made.socket.native(), &said, sizeof said, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof said)
      return std::nullopt;
    return made;
  } catch (const exception&) { // no random numbers or no memory: the process uses no rings
    return std::nullopt;
  }
}

} // namespace troupe
