#pragma once

#include <cstddef>

namespace troupe::program {

/// Bytes that this process's heap has handed out and not taken back: what a leak makes grow, and unlike resident memory
/// neither what an allocator keeps for later nor what an address sanitizer holds back.
std::size_t allocated_bytes();

} // namespace troupe::program
