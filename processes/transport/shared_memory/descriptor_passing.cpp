#include <troupe/device/error.hpp>
#include <troupe/processes/transport/shared_memory/descriptor_passing.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace troupe {

namespace {

/// Room for the control data of one message. One descriptor more than allowed has room, so that it is seen and closed.
struct control_room {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * (most_passed_descriptors + 1))> bytes{};
};

void check_passing(const file_descriptor& socket, std::size_t size_bytes, std::size_t count) {
  if (size_bytes == 0 || size_bytes > most_passing_bytes || count > most_passed_descriptors)
    throw exception{errc::invalid_argument,
                    "a message of " + std::to_string(size_bytes) + " bytes and " + std::to_string(count) +
                        " descriptors cannot be passed: the limits are 1 to " + std::to_string(most_passing_bytes) +
                        " bytes and " + std::to_string(most_passed_descriptors) + " descriptors"};
  int family = 0;
  socklen_t size = sizeof family;
  if (::getsockopt(socket.native(), SOL_SOCKET, SO_DOMAIN, &family, &size) != 0 || family != AF_UNIX)
    throw exception{errc::invalid_argument, "descriptors can be passed over Unix sockets only"};
}

/// Waits until something can be read.
void await_message(const file_descriptor& socket, std::chrono::steady_clock::time_point until) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    pollfd waiting{.fd = socket.native(), .events = POLLIN, .revents = 0};
    const auto limit = static_cast<int>(std::clamp<std::chrono::milliseconds::rep>(left, 0, 60'000));
    const int ready = ::poll(&waiting, 1, limit);
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) throw_system_error(errc::unsupported, "poll", "a socket cannot be waited for");
    if (std::chrono::steady_clock::now() >= until)
      throw exception{errc::deadline_exceeded, "no descriptors have arrived from the peer in time"};
  }
}

/// Takes all descriptors of a message. Returns whether the message had nothing else.
bool take_descriptors(msghdr& message, std::vector<file_descriptor>& into) {
  bool is_pure = true;
  for (cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr; one = CMSG_NXTHDR(&message, one)) {
    if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS) {
      is_pure = false;
      continue;
    }
    const std::size_t count = (one->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int native = -1;
      std::memcpy(&native, CMSG_DATA(one) + i * sizeof(int), sizeof(int));
      into.emplace_back(native);
    }
  }
  return is_pure;
}

} // namespace

void send_descriptors(const file_descriptor& socket, std::string_view bytes, std::span<const int> descriptors) {
  check_passing(socket, bytes.size(), descriptors.size());
  control_room room;
  iovec payload{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = room.bytes.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = 0;
  do sent = ::sendmsg(socket.native(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN))
    throw_system_error(errc::rank_lost, "sendmsg", "the peer has closed its socket");
  if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ETOOMANYREFS))
    throw_system_error(errc::busy, "sendmsg", "the peer has not read the descriptors that it was sent before");
  if (sent < 0) throw_system_error(errc::unsupported, "sendmsg", "descriptors could not be passed");
  if (sent != static_cast<ssize_t>(bytes.size()))
    throw exception{errc::busy, "the peer has not read what it was sent before"};
}

namespace {

/// A message, and whether the limits have cut it.
struct received_message {
  passed_descriptors what;
  bool is_whole = true;
};

received_message receive_message(const file_descriptor& socket, std::size_t most_bytes, std::size_t most_descriptors,
                                 std::chrono::steady_clock::time_point until) {
  check_passing(socket, most_bytes, most_descriptors);
  received_message got;
  ssize_t size = -1;
  msghdr message{};
  control_room room;
  // One byte more than allowed, so that a longer message is seen.
  std::string bytes(most_bytes + 1, '\0');
  iovec payload{.iov_base = bytes.data(), .iov_len = bytes.size()};
  for (bool was_reset = false; size < 0;) {
    await_message(socket, until);
    message = {};
    message.msg_iov = &payload;
    message.msg_iovlen = 1;
    message.msg_control = room.bytes.data();
    message.msg_controllen = room.bytes.size();
    size = ::recvmsg(socket.native(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    // A peer that has not read all before it closed. What it sent before is still there.
    if (size < 0 && errno == ECONNRESET && !std::exchange(was_reset, true)) continue;
    if (size < 0 && errno == ECONNRESET) throw exception{errc::rank_lost, "the peer has closed its socket"};
    if (size < 0 && errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)
      throw_system_error(errc::unsupported, "recvmsg", "descriptors could not be received");
  }
  std::vector<file_descriptor>& descriptors = got.what.descriptors;
  const bool is_pure = take_descriptors(message, descriptors); // owned before anything is checked
  if (size == 0 && descriptors.empty()) throw exception{errc::rank_lost, "the peer has closed its socket"};
  if ((message.msg_flags & MSG_CTRUNC) != 0 && descriptors.size() <= most_passed_descriptors)
    throw exception{errc::out_of_memory, "a descriptor from the peer could not be received, because this process has "
                                         "none left: raise the limit (ulimit -n)"};
  got.is_whole = is_pure && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  bytes.resize(static_cast<std::size_t>(size));
  got.what.bytes = std::move(bytes);
  return got;
}

[[noreturn]] void refuse(const passed_descriptors& got, const std::string& expected) {
  throw exception{errc::internal, "the peer has sent " + std::to_string(got.bytes.size()) + " bytes and " +
                                      std::to_string(got.descriptors.size()) + " descriptors in place of " + expected};
}

} // namespace

passed_descriptors receive_passed(const file_descriptor& socket, std::size_t most_bytes, std::size_t most_descriptors,
                                  std::chrono::steady_clock::time_point until) {
  received_message got = receive_message(socket, most_bytes, most_descriptors, until);
  if (!got.is_whole || got.what.bytes.empty() || got.what.bytes.size() > most_bytes ||
      got.what.descriptors.size() > most_descriptors)
    refuse(got.what, "1 to " + std::to_string(most_bytes) + " bytes and up to " + std::to_string(most_descriptors));
  return std::move(got.what);
}

passed_descriptors receive_descriptors(const file_descriptor& socket, std::size_t size_bytes, std::size_t count,
                                       std::chrono::steady_clock::time_point until) {
  received_message got = receive_message(socket, size_bytes, count, until);
  if (!got.is_whole || got.what.bytes.size() != size_bytes || got.what.descriptors.size() != count)
    refuse(got.what, std::to_string(size_bytes) + " bytes and " + std::to_string(count));
  return std::move(got.what);
}

} // namespace troupe
