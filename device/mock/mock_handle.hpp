/// Handles of the mock are numbers that no driver of the process hands out twice, in the clothes of the seam's
/// opaque pointers: a handle that was destroyed, or that belongs to another driver, is an error and never a crash.
#pragma once

#include <atomic>
#include <cstdint>

namespace troupe {

/// A number not given before. Later ones are greater, so that order by number is order of creation.
/// It starts beyond CUDA's special stream handles (0, 1 and 2), which the mock therefore refuses.
[[nodiscard]] inline std::uint64_t next_mock_handle() noexcept {
  static std::atomic<std::uint64_t> next{0x1000};
  return next.fetch_add(1, std::memory_order_relaxed);
}

template <class Native>
[[nodiscard]] Native to_native(std::uint64_t number) noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): never dereferenced
  return reinterpret_cast<Native>(static_cast<std::uintptr_t>(number));
}

template <class Native>
[[nodiscard]] std::uint64_t number_of(Native handle) noexcept {
  return reinterpret_cast<std::uintptr_t>(handle);
}

} // namespace troupe
