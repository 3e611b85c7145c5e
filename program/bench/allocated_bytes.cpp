#include <troupe/program/bench/allocated_bytes.hpp>

#include <malloc.h>

// A function of the sanitizers' runtime. Allocations of a sanitized program do not go through the heap that mallinfo2
// reports.
extern "C" [[gnu::weak]] std::size_t __sanitizer_get_current_allocated_bytes();

namespace troupe::program {

std::size_t allocated_bytes() {
  if (__sanitizer_get_current_allocated_bytes != nullptr) return __sanitizer_get_current_allocated_bytes();
  const struct mallinfo2 heap = ::mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

} // namespace troupe::program
