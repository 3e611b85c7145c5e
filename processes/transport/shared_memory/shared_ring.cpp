#include <troupe/device/error.hpp>
#include <troupe/processes/transport/shared_memory/shared_ring.hpp>

#include <sys/random.h>

#include <bit>
#include <utility>

namespace troupe {

namespace {

/// The first words of the memory. Its creator writes them before it passes the memory on; the other side reads them
/// once.
struct memory_header {
  static constexpr std::uint64_t right_magic = 0x474E495250555254U; // "TRUPRING"
  static constexpr std::size_t words = 6;

  std::array<std::uint64_t, words> all{};

  memory_header(const ring_identity& self, std::uint64_t capacity_words)
    : all{right_magic,           static_cast<std::uint64_t>(self.purpose),     capacity_words, self.session.words[0],
          self.session.words[1], static_cast<std::uint64_t>(self.rank.value())} {}
  explicit memory_header(const shared_memory& from) {
    for (std::size_t i = 0; i < words; ++i) all[i] = shared_words{from.words()}.load(i, std::memory_order_relaxed, {});
  }
};

void write_header(const shared_memory& to, const memory_header& header) {
  for (std::size_t i = 0; i < memory_header::words; ++i)
    shared_words{to.words()}.store(i, header.all[i], std::memory_order_relaxed, {});
}

/// Throws if the memory is not what was expected.
void check_header(const shared_memory& from, const memory_header& expected, const std::string& what) {
  const memory_header found{from};
  const auto refuse = [&](const std::string& reason) { throw exception{errc::internal, what + " " + reason}; };
  if (found.all[0] != expected.all[0]) refuse("is not of troupe");
  if (found.all[1] != expected.all[1])
    refuse("has purpose " + std::to_string(found.all[1]) + " and must have purpose " + std::to_string(expected.all[1]));
  if (found.all[2] != expected.all[2])
    refuse("announces " + std::to_string(found.all[2]) + " words and must have " + std::to_string(expected.all[2]));
  if (found.all[3] != expected.all[3] || found.all[4] != expected.all[4]) refuse("is of another session");
  if (found.all[5] != expected.all[5])
    refuse("is of rank " + std::to_string(found.all[5]) + " and must be of rank " + std::to_string(expected.all[5]));
}

std::size_t ring_size_bytes(std::size_t capacity_bytes) {
  return ring_layout::first_data * sizeof(std::uint64_t) + capacity_bytes;
}

void check_capacity(std::size_t capacity_bytes) {
  if (std::has_single_bit(capacity_bytes) && capacity_bytes >= least_ring_bytes && capacity_bytes <= most_ring_bytes)
    return;
  throw exception{errc::invalid_argument, "a ring cannot have " + std::to_string(capacity_bytes) +
                                              " bytes: choose a power of two from " + std::to_string(least_ring_bytes) +
                                              " to " + std::to_string(most_ring_bytes)};
}

} // namespace

std::string_view describe(ring_fault fault) noexcept {
  switch (fault) {
    case ring_fault::sequence: return "a sequence word that is not the next one";
    case ring_fault::length: return "a record that is longer than the limit";
    case ring_fault::check: return "a record that is torn, overwritten or forged";
    case ring_fault::consumed: return "a position up to which it cannot have read";
    case ring_fault::none: break;
  }
  return "nothing wrong";
}

ring_session ring_session::make() {
  ring_session made;
  if (::getrandom(made.words.data(), sizeof made.words, 0) != static_cast<ssize_t>(sizeof made.words))
    throw_memory_failure("getrandom", "the system has no random numbers");
  return made;
}

shared_ring::shared_ring(shared_memory memory, const ring_identity& self, std::size_t capacity_bytes)
  : memory_{std::move(memory)} {
  layout_.capacity_words = capacity_bytes / sizeof(std::uint64_t);
  layout_.most_bytes = capacity_bytes / 4;
  // Each direction has a seed of its own, so that a record of the other ring is refused.
  layout_.seed = self.session.words[0] ^ (self.session.words[1] << 1U) ^ static_cast<std::uint64_t>(self.purpose);
}

shared_ring shared_ring::create(const ring_identity& self, std::size_t capacity_bytes) {
  check_capacity(capacity_bytes);
  shared_memory memory = shared_memory::create("troupe-ring", ring_size_bytes(capacity_bytes));
  write_header(memory, {self, capacity_bytes / sizeof(std::uint64_t)});
  return {std::move(memory), self, capacity_bytes};
}

shared_ring shared_ring::open(file_descriptor from, const ring_identity& expected, std::size_t capacity_bytes,
                              const std::string& what) {
  check_capacity(capacity_bytes);
  shared_memory memory = shared_memory::open(std::move(from), ring_size_bytes(capacity_bytes), what);
  check_header(memory, {expected, capacity_bytes / sizeof(std::uint64_t)}, what);
  return {std::move(memory), expected, capacity_bytes};
}

shared_doorbell shared_doorbell::create(const ring_identity& self) {
  shared_memory memory = shared_memory::create("troupe-doorbell", doorbell_layout::words * sizeof(std::uint64_t));
  write_header(memory, {self, doorbell_layout::words});
  return shared_doorbell{std::move(memory)};
}

shared_doorbell shared_doorbell::open(file_descriptor from, const ring_identity& expected, const std::string& what) {
  shared_memory memory = shared_memory::open(std::move(from), doorbell_layout::words * sizeof(std::uint64_t), what);
  check_header(memory, {expected, doorbell_layout::words}, what);
  return shared_doorbell{std::move(memory)};
}

} // namespace troupe
