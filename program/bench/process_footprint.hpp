/// What a process holds of its machine: what a leak would make grow.
#pragma once

#include <troupe/runtime/world.hpp>

#include <cstddef>

namespace troupe::program {

struct process_footprint {
  std::size_t device_bytes = 0; ///< In use on the devices of a world's local ranks, by whomever.
  std::size_t file_descriptors = 0;
  std::size_t threads = 0;
  std::size_t shared_memory = 0;  ///< Entries of /dev/shm, whoever's.
  std::size_t heap_bytes = 0;     ///< Handed out and not taken back.
  std::size_t resident_bytes = 0; ///< With what allocators keep for later.
};

[[nodiscard]] process_footprint measure_footprint(const world& where);

} // namespace troupe::program
