#include <troupe/actors/transport/guard_address.hpp>

#include <troupe/device/error.hpp>

#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

namespace troupe {

namespace {

constexpr std::size_t most_addresses = 4;

bool is_ipv4_loopback(std::uint32_t in_network_order) {
  return ntohl(in_network_order) >> 24 == 127;
}

} // namespace

guard_address guard_address::loopback(std::uint16_t port) noexcept {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_port = htons(port);
  made.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return {reinterpret_cast<const sockaddr*>(&made), sizeof made};
}

guard_address guard_address::of_socket(int descriptor) {
  guard_address made;
  made.length_ = sizeof made.storage_;
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&made.storage_), &made.length_) != 0)
    throw exception{error{.code = errc::internal,
                          .text = "the address of a socket could not be read",
                          .call = "getsockname",
                          .native_code = errno,
                          .native_text = std::strerror(errno)}};
  return made;
}

guard_address::guard_address(const sockaddr* raw, socklen_t length) noexcept
  : length_{std::min<socklen_t>(length, sizeof storage_)} {
  std::memcpy(&storage_, raw, length_);
}

std::uint16_t guard_address::port() const noexcept {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(storage_).sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage_).sin6_port);
  return 0;
}

bool guard_address::is_loopback() const noexcept {
  if (family() == AF_INET) return is_ipv4_loopback(reinterpret_cast<const sockaddr_in&>(storage_).sin_addr.s_addr);
  if (family() != AF_INET6) return false;
  const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr;
  if (IN6_IS_ADDR_LOOPBACK(&six)) return true;
  if (!IN6_IS_ADDR_V4MAPPED(&six)) return false;
  std::uint32_t four = 0;
  std::memcpy(&four, &six.s6_addr[12], sizeof four);
  return is_ipv4_loopback(four);
}

std::string guard_address::text() const {
  std::array<char, NI_MAXHOST> host{};
  if (getnameinfo(raw(), length_, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "unknown";
  return host_and_port(host.data(), port());
}

std::vector<guard_address> resolve_guard_address(const std::string& host, std::uint16_t port) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const int problem =
      host.empty() ? EAI_NONAME : getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &first);
  if (problem != 0)
    throw exception{
        error{.code = errc::invalid_argument,
              .text = "unknown host '" + host + "': give a name that this machine can resolve, or an IP address",
              .call = "getaddrinfo",
              .native_code = problem,
              .native_text = gai_strerror(problem)}};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner{first, &freeaddrinfo};
  std::vector<guard_address> found;
  for (const addrinfo* one = first; one != nullptr && found.size() < most_addresses; one = one->ai_next)
    if (one->ai_family == AF_INET || one->ai_family == AF_INET6) found.emplace_back(one->ai_addr, one->ai_addrlen);
  if (found.empty()) throw exception{errc::invalid_argument, "'" + host + "' has no IP address"};
  return found;
}

std::string host_and_port(std::string_view host, std::uint16_t port) {
  const bool is_six = host.find(':') != std::string_view::npos;
  return (is_six ? "[" : "") + std::string{host} + (is_six ? "]:" : ":") + std::to_string(port);
}

} // namespace troupe
