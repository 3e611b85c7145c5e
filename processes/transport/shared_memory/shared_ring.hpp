/// A ring of records, and a doorbell, in sealed shared memory with a header that identifies them.
#pragma once

#include <troupe/device/identity.hpp>
#include <troupe/processes/transport/shared_memory/ring_protocol.hpp>
#include <troupe/processes/transport/shared_memory/shared_memory.hpp>
#include <troupe/processes/transport/shared_memory/shared_words.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace troupe {

/// Identifies one connection. Both sides learn it when they authenticate each other. It is no secret.
struct ring_session {
  std::array<std::uint64_t, 2> words{};

  /// Returns a new one from the system's source of random numbers. Errors: unsupported.
  [[nodiscard]] static ring_session make();
  friend bool operator==(const ring_session&, const ring_session&) = default;
};

/// The purpose of a ring's or doorbell's memory.
enum class ring_purpose : std::uint8_t {
  requests = 1,     ///< From a rank's process to the order service.
  decisions = 2,    ///< From the order service to a rank's process.
  rank_bell = 3,    ///< Wakes the rank's process.
  service_bell = 4, ///< Wakes the order service; shared by all its ranks, so it belongs to no session.
  process_bell = 5, ///< Wakes a process that has mock ranks; its session is the process's own.
};

/// Identifies one ring or doorbell. Memory with another identity is refused.
struct ring_identity {
  ring_purpose purpose = ring_purpose::requests;
  ring_session session{};
  troupe::rank rank{0};
};

/// Smallest and largest capacity of a ring. A capacity is a power of two.
inline constexpr std::size_t least_ring_bytes = 256;
inline constexpr std::size_t most_ring_bytes = std::size_t{16} << 20U;

/// The memory of one ring. A record has at most a quarter of the capacity, so that one can be written while another
/// is being read. Errors name \p what.
class shared_ring {
public:
  /// Makes an empty ring. Errors: invalid_argument (capacity), out_of_memory, unsupported.
  [[nodiscard]] static shared_ring create(const ring_identity& self, std::size_t capacity_bytes);
  /// Opens a ring that another process made. Verifies seals, size, magic number and identity; nothing of the
  /// header is used later. Errors: internal, out_of_memory.
  [[nodiscard]] static shared_ring open(file_descriptor from, const ring_identity& expected, std::size_t capacity_bytes,
                                        const std::string& what);

  /// Only one process may have a writer, and one a reader.
  [[nodiscard]] ring_writer<shared_words> writer() const { return {shared_words{memory_.words()}, layout_}; }
  [[nodiscard]] ring_reader<shared_words> reader() const { return {shared_words{memory_.words()}, layout_}; }
  [[nodiscard]] shared_memory& memory() noexcept { return memory_; }
  [[nodiscard]] const shared_memory& memory() const noexcept { return memory_; }
  [[nodiscard]] const ring_layout& layout() const noexcept { return layout_; }

private:
  shared_ring(shared_memory memory, const ring_identity& self, std::size_t capacity_bytes);

  shared_memory memory_;
  ring_layout layout_;
};

/// The memory of one doorbell.
class shared_doorbell {
public:
  [[nodiscard]] static shared_doorbell create(const ring_identity& self);
  [[nodiscard]] static shared_doorbell open(file_descriptor from, const ring_identity& expected,
                                            const std::string& what);

  [[nodiscard]] doorbell_caller<shared_words> caller() const { return doorbell_caller{shared_words{memory_.words()}}; }
  [[nodiscard]] doorbell_sleeper<shared_words> sleeper() const {
    return doorbell_sleeper{shared_words{memory_.words()}};
  }
  [[nodiscard]] shared_memory& memory() noexcept { return memory_; }
  [[nodiscard]] const shared_memory& memory() const noexcept { return memory_; }

private:
  explicit shared_doorbell(shared_memory memory) : memory_{std::move(memory)} {}

  shared_memory memory_;
};

} // namespace troupe
