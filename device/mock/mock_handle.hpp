/// Handles of the mock. They are numbers, unique across all drivers of the process, stored in the driver interface's
/// opaque pointer types. Using a destroyed handle, or one of another driver, is therefore an error and never a crash.
#pragma once

#include <atomic>
#include <cstdint>

namespace troupe {

/// Returns a number that was not returned before. Numbers increase, so the order of numbers is the order of creation.
/// They start above CUDA's special stream handles (0, 1 and 2), which the mock therefore refuses.
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
