/// The protocol between the store's clients and its server. Both ends must have the same byte order, which Gloo's own
/// sockets need too.
#pragma once

#include <troupe/collectives/backend/gloo/gloo_door.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace troupe::gloo_wire {

using namespace std::chrono_literals;

/// The first message of a client. The server answers with one byte.
struct hello {
  std::uint64_t magic;
  gloo_secret secret;
  /// Total number of ranks that will send formed. It must be the same in all messages of one formation.
  std::uint32_t comers;
  std::uint32_t reserved;
};
constexpr std::uint64_t hello_magic = 0x31'65'70'75'6F'72'74'67; // "gtroupe1"
constexpr std::byte agreed{1};

enum class request : std::uint32_t {
  set = 1,    ///< Answered by one byte.
  get = 2,    ///< Answered by the size of the value and the value, once it is set.
  formed = 3, ///< Answered by one byte.
};

/// Precedes each request; the key and the value follow it.
struct heading {
  request what;
  std::uint32_t key_bytes;
  std::uint32_t value_bytes;
};

constexpr std::size_t most_key_bytes = 256;
constexpr std::size_t most_value_bytes = std::size_t{1} << 20U;
constexpr std::size_t most_formation_bytes = std::size_t{64} << 20U; ///< Sum over keys and values.
constexpr std::size_t most_visitors = 4096;
constexpr std::uint32_t most_comers = 1U << 20U;
constexpr auto time_for_hello = 5s;
constexpr auto time_for_forming = 10min; ///< Counts from the making of the unique id.

} // namespace troupe::gloo_wire
