/// Records which clients a rank's actor already watches.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace troupe {

/// Holds a set of actor ids, which are never 0 and never reused. It may forget some ids if there are many; add() then
/// returns true for them again.
/// Threads: safe from any; calls for the same id from one thread at a time.
class known_clients {
public:
  /// Adds \p client. Returns false if it is already in the set.
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
    // may fail if another thread took the place
    free->compare_exchange_strong(nobody, client, std::memory_order_relaxed);
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
  static constexpr std::size_t reach = 8; ///< Number of places in which one id may be stored.

  std::array<std::atomic<std::uint64_t>, size> places_{};
};

} // namespace troupe
