/// Holds the actors of a world's local ranks, and the states that admit their requests. An actor that has ended is
/// replaced, and lookups return its successor.
#pragma once

#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/actors/rank/collective_state.hpp>

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

/// A rank's actor and its state. Clients that are not actors call the state directly, without a message.
struct rank_access {
  collective_inner_handle actor{};
  std::shared_ptr<collective_state> state{};
};

/// Maps a place, which is the index of a local rank, to the rank's present actor. Threads: safe from any.
class rank_directory {
public:
  explicit rank_directory(std::vector<rank_access> first) : places_(first.size()) {
    for (std::size_t i = 0; i < first.size(); ++i) replace(i, std::move(first[i]));
  }

  [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }
  /// Returns the present actor of \p place. The reference stays valid and unchanged until clear().
  [[nodiscard]] const collective_inner_handle& at(std::size_t place) const noexcept { return access(place).actor; }
  /// Returns the state that admits requests to the rank (collective_state::accept()). The reference stays valid.
  [[nodiscard]] collective_state& state_of(std::size_t place) const noexcept { return *access(place).state; }
  void replace(std::size_t place, rank_access next) {
    const std::lock_guard lock{mutex_};
    all_.push_back(std::move(next));
    places_[place].store(&all_.back(), std::memory_order_release);
  }
  /// Drops all handles, because handles must not outlive their actor system. No lookups of actors may follow.
  void clear() {
    const std::lock_guard lock{mutex_};
    for (rank_access& one : all_) one.actor = collective_inner_handle{};
  }

private:
  [[nodiscard]] const rank_access& access(std::size_t place) const noexcept {
    return *places_[place].load(std::memory_order_acquire);
  }

  std::vector<std::atomic<const rank_access*>> places_;
  std::mutex mutex_;
  std::deque<rank_access> all_; ///< Includes ended actors, which readers may still use.
};

} // namespace troupe
