#include <troupe/collectives/backend/gloo/gloo_door.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace troupe {

namespace {

constexpr std::uint32_t door_magic = 0x316F6F67; // "goo1": kind and version of the layout below

/// Layout of a gloo_door in a unique id.
struct packed_door {
  std::uint32_t magic;
  std::uint16_t family;
  std::uint16_t port; ///< In network byte order.
  std::array<std::byte, 16> address;
  gloo_secret secret;
};
static_assert(std::is_trivially_copyable_v<packed_door> && sizeof(packed_door) <= sizeof(unique_id::bytes));

sockaddr_in as_v4(const socket_address& from) noexcept {
  sockaddr_in made;
  std::memcpy(&made, &from.bytes, sizeof made);
  return made;
}

sockaddr_in6 as_v6(const socket_address& from) noexcept {
  sockaddr_in6 made;
  std::memcpy(&made, &from.bytes, sizeof made);
  return made;
}

template <class Native>
socket_address from_native(const Native& native) noexcept {
  socket_address made;
  std::memcpy(&made.bytes, &native, sizeof native);
  made.size_bytes = sizeof native;
  return made;
}

} // namespace

socket_address parse_socket_address(const std::string& numbers) {
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  const bool is_v4 = ::inet_pton(AF_INET, numbers.c_str(), &v4.sin_addr) == 1;
  const bool is_v6 = !is_v4 && ::inet_pton(AF_INET6, numbers.c_str(), &v6.sin6_addr) == 1;
  if (!is_v4 && !is_v6)
    throw exception{errc::invalid_argument,
                    "'" + numbers + "' is not a numeric IPv4 or IPv6 address: write one, for example 127.0.0.1"};
  if (is_v4 ? v4.sin_addr.s_addr == htonl(INADDR_ANY)
            : std::memcmp(&v6.sin6_addr, &in6addr_any, sizeof in6addr_any) == 0)
    throw exception{errc::invalid_argument, "'" + numbers +
                                                "' stands for all interfaces, and no peer can connect to "
                                                "it: name the address of one"};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  return is_v4 ? from_native(v4) : from_native(v6);
}

bool equal(const gloo_secret& left, const gloo_secret& right) noexcept {
  unsigned difference = 0;
  for (std::size_t i = 0; i < left.size(); ++i) difference |= std::to_integer<unsigned>(left[i] ^ right[i]);
  return difference == 0;
}

unique_id to_unique_id(const gloo_door& door) {
  packed_door packed{.magic = door_magic, .family = 4, .port = 0, .address = {}, .secret = door.secret};
  if (door.where.bytes.ss_family == AF_INET) {
    const sockaddr_in v4 = as_v4(door.where);
    packed.port = v4.sin_port;
    std::memcpy(packed.address.data(), &v4.sin_addr, sizeof v4.sin_addr);
  } else {
    const sockaddr_in6 v6 = as_v6(door.where);
    packed.family = 6;
    packed.port = v6.sin6_port;
    std::memcpy(packed.address.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
  }
  unique_id id;
  std::memcpy(id.bytes.data(), &packed, sizeof packed);
  return id;
}

gloo_door to_door(const unique_id& id) {
  packed_door packed;
  std::memcpy(&packed, id.bytes.data(), sizeof packed);
  if (packed.magic != door_magic || (packed.family != 4 && packed.family != 6) || packed.port == 0)
    throw exception{errc::invalid_argument, "the unique id was not made by a gloo backend of this version: give all "
                                            "ranks the id that make_unique_id() of one of them returned"};
  if (packed.family == 4) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = packed.port;
    std::memcpy(&v4.sin_addr, packed.address.data(), sizeof v4.sin_addr);
    return {.where = from_native(v4), .secret = packed.secret};
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = packed.port;
  std::memcpy(&v6.sin6_addr, packed.address.data(), sizeof v6.sin6_addr);
  return {.where = from_native(v6), .secret = packed.secret};
}

} // namespace troupe
