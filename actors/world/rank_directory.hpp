/// Holds the actors of a world's local ranks. An actor that has ended is replaced, and lookups return its successor.
#pragma once

#include <troupe/actors/caf/inner_messages.hpp>

#include <atomic>
#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

/// Maps a place, which is the index of a local rank, to the rank's present actor. Threads: safe from any.
class rank_directory {
public:
  explicit rank_directory(std::vector<collective_inner_handle> first) : places_(first.size()) {
    for (std::size_t i = 0; i < first.size(); ++i) replace(i, std::move(first[i]));
  }

  [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }
  /// Returns the present actor of \p place. The reference stays valid and unchanged until clear().
  [[nodiscard]] const collective_inner_handle& at(std::size_t place) const noexcept {
    return *places_[place].load(std::memory_order_acquire);
  }
  void replace(std::size_t place, collective_inner_handle next) {
    const std::lock_guard lock{mutex_};
    all_.push_back(std::move(next));
    places_[place].store(&all_.back(), std::memory_order_release);
  }
  /// Drops all handles, because handles must not outlive their actor system. No lookups may follow.
  void clear() {
    const std::lock_guard lock{mutex_};
    for (collective_inner_handle& one : all_) one = collective_inner_handle{};
  }

private:
  std::vector<std::atomic<const collective_inner_handle*>> places_;
  std::mutex mutex_;
  std::deque<collective_inner_handle> all_; ///< Includes ended actors, which readers may still use.
};

} // namespace troupe
