#pragma once

#include <cstddef>

namespace troupe::program {

/// Returns the bytes that this process's heap has handed out and that were not freed. A leak makes this number grow.
/// Unlike resident memory, it counts neither the memory that the allocator keeps for reuse nor the quarantine of an
/// address sanitizer.
std::size_t allocated_bytes();

} // namespace troupe::program
