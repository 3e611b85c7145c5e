#include <troupe/backends/gloo/gloo_backend.hpp>
#include <troupe/backends/gloo/gloo_endpoint.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace troupe {

namespace {

constexpr std::uint32_t endpoint_magic = 0x326F6F67; // "goo2": kind and version of the layout below

/// Layout of a gloo_endpoint in a unique id.
struct packed_endpoint {
  std::uint32_t magic;
  std::uint32_t address_bytes;
  std::array<std::byte, sizeof(sockaddr_in6)> address; ///< A sockaddr_in or sockaddr_in6.
  gloo_secret secret;
};
static_assert(std::is_trivially_copyable_v<packed_endpoint> && sizeof(packed_endpoint) <= sizeof(unique_id::bytes));
static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));

template <class Native>
socket_address from_native(const Native& native) noexcept {
  socket_address made;
  std::memcpy(&made.bytes, &native, sizeof native);
  made.size_bytes = sizeof native;
  return made;
}

} // namespace

socket_address parse_socket_address(const std::string& numbers) {
  check(gloo_options{.interface_address = numbers});
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  if (::inet_pton(AF_INET, numbers.c_str(), &v4.sin_addr) == 1) return from_native(v4);
  ::inet_pton(AF_INET6, numbers.c_str(), &v6.sin6_addr);
  return from_native(v6);
}

bool is_loopback(const socket_address& one) noexcept {
  if (one.bytes.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &one.bytes, sizeof v4);
    return ntohl(v4.sin_addr.s_addr) >> 24U == 127;
  }
  sockaddr_in6 v6{};
  std::memcpy(&v6, &one.bytes, sizeof v6);
  return one.bytes.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

bool equal(const gloo_secret& left, const gloo_secret& right) noexcept {
  unsigned difference = 0;
  for (std::size_t i = 0; i < left.size(); ++i) difference |= std::to_integer<unsigned>(left[i] ^ right[i]);
  return difference == 0;
}

unique_id to_unique_id(const gloo_endpoint& endpoint) {
  packed_endpoint packed{
      .magic = endpoint_magic, .address_bytes = endpoint.where.size_bytes, .address = {}, .secret = endpoint.secret};
  std::memcpy(packed.address.data(), &endpoint.where.bytes, packed.address.size());
  unique_id id;
  std::memcpy(id.bytes.data(), &packed, sizeof packed);
  return id;
}

gloo_endpoint to_endpoint(const unique_id& id) {
  packed_endpoint packed{};
  std::memcpy(&packed, id.bytes.data(), sizeof packed);
  gloo_endpoint endpoint{.where = {.bytes = {}, .size_bytes = packed.address_bytes}, .secret = packed.secret};
  std::memcpy(&endpoint.where.bytes, packed.address.data(), packed.address.size());
  sockaddr_in either{};
  std::memcpy(&either, packed.address.data(), sizeof either);
  const bool is_v4 = either.sin_family == AF_INET && packed.address_bytes == sizeof(sockaddr_in);
  const bool is_v6 = either.sin_family == AF_INET6 && packed.address_bytes == sizeof(sockaddr_in6);
  if (packed.magic != endpoint_magic || (!is_v4 && !is_v6) || either.sin_port == 0)
    throw exception{errc::invalid_argument, "the unique id was not made by a gloo backend of this version: give all "
                                            "ranks the id that make_unique_id() of one of them returned"};
  return endpoint;
}

} // namespace troupe
