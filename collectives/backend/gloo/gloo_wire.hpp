/// What the store's clients and its server say to each other. Both ends have one byte order, as Gloo's own sockets
/// need.
#pragma once

#include <troupe/collectives/backend/gloo/gloo_door.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace troupe::gloo_wire {

using namespace std::chrono_literals;

/// First of all, from a client; answered by one byte.
struct hello {
  std::uint64_t magic;
  gloo_secret secret;
  std::uint32_t comers; ///< How many ranks say formed(), in all: those of one formation say the same.
  std::uint32_t reserved;
};
constexpr std::uint64_t hello_magic = 0x31'65'70'75'6F'72'74'67; // "gtroupe1"
constexpr std::byte agreed{1};

enum class request : std::uint32_t {
  set = 1,    ///< Answered by one byte.
  get = 2,    ///< Answered by the value's size and the value, once there is one.
  formed = 3, ///< Answered by one byte.
};

/// Before each request; then come the key and the value.
struct heading {
  request what;
  std::uint32_t key_bytes;
  std::uint32_t value_bytes;
};

constexpr std::size_t most_key_bytes = 256;
constexpr std::size_t most_value_bytes = std::size_t{1} << 20U;
constexpr std::size_t most_formation_bytes = std::size_t{64} << 20U; ///< Keys and values.
constexpr std::size_t most_visitors = 4096;
constexpr std::uint32_t most_comers = 1U << 20U;
constexpr auto time_for_hello = 5s;
constexpr auto time_for_forming = 10min; ///< From the making of the unique id.

} // namespace troupe::gloo_wire
