/// Which clients a rank's actor watches already.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace troupe {

/// A set of actors' numbers, which are never 0 and never used twice. It may forget some when there are many: whoever
/// asks is then told "new" again.
/// Threads: safe from any; one number from one thread at a time.
class known_clients {
public:
  /// Whether \p client was not in it.
  bool add(std::uint64_t client) noexcept {
    std::atomic<std::uint64_t>* free = nullptr;
    for (std::size_t i = 0; i < reach; ++i) {
      auto& place = places_[(client + i) % size];
      const std::uint64_t found = place.load(std::memory_order_relaxed);
      if (found == client) return false;
      if (found == 0 && free == nullptr) free = &place;
    }
    if (free == nullptr) return true;
    std::uint64_t nobody = 0;
    free->compare_exchange_strong(nobody, client, std::memory_order_relaxed); // another may have taken the place
    return true;
  }

  void remove(std::uint64_t client) noexcept {
    for (std::size_t i = 0; i < reach; ++i) {
      std::uint64_t found = client;
      if (places_[(client + i) % size].compare_exchange_strong(found, 0, std::memory_order_relaxed)) return;
    }
  }

private:
  static constexpr std::size_t size = 1024;
  static constexpr std::size_t reach = 8; ///< Places that one number may have.

  std::array<std::atomic<std::uint64_t>, size> places_{};
};

} // namespace troupe
