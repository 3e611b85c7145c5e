// What ranks bring to meetings.
#pragma once

#include <troupe/device/file_descriptor.hpp>
#include <troupe/processes/meeting/meeting_messages.hpp>

#include <catch2/catch_test_macros.hpp>

#include <sys/mman.h>
#include <sys/stat.h>

#include <string>
#include <vector>

namespace troupe::tests {

inline unique_id formation(int number) {
  unique_id id;
  id.bytes.front() = static_cast<std::byte>(number);
  return id;
}

inline constexpr line_layout small_layout{.ranks = 2, .blocks = 1, .lines_per_block = 1};

/// Returns the offer of a rank that can take part.
inline meeting_offer offer_of(int self, int world_size = 2, int number = 1) {
  return {.name = name_of_formation(formation(number)),
          .self = self,
          .world_size = world_size,
          .layout = small_layout,
          .part_bytes = 4096,
          .blocks = 16,
          .scratch_bytes = 4096};
}

inline file_descriptor some_memory() {
  file_descriptor made{::memfd_create("troupe test", MFD_CLOEXEC)};
  REQUIRE(made);
  return made;
}

/// Returns what distinguishes the memory of a descriptor from others.
inline ino_t memory_of(int descriptor) {
  struct ::stat seen {};
  REQUIRE(::fstat(descriptor, &seen) == 0);
  return seen.st_ino;
}

} // namespace troupe::tests
