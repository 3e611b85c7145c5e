/// Defines the actor that represents one rank (one GPU). All requests to the rank go to this actor.
#pragma once

#include <troupe/actors/caf/exit_note.hpp>
#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/actors/rank/collective_state.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <set>

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

/// Connects collective_state to CAF. Client messages are handled in enqueue(), on the sender's thread, and do not enter
/// the mailbox.
class collective_actor final : public collective_inner_handle::base {
public:
  collective_actor(caf::actor_config& settings, std::shared_ptr<collective_state> state);

  using collective_inner_handle::base::enqueue;
  compat::enqueue_result enqueue(caf::mailbox_element_ptr what, compat::enqueue_host* host) override;
  behavior_type make_behavior() override;
  void on_exit() override;

private:
  /// Handles \p element on the sender's thread if it is a client message. Returns whether it was.
  [[nodiscard]] bool take_before_handlers(caf::mailbox_element& element);
  /// Returns the client number of \p asker, or 0 if \p asker is null. The actor monitors a client from its first
  /// request on, because the client's lanes are released when it ends.
  [[nodiscard]] std::uint64_t client_of(const caf::strong_actor_ptr& asker);
  void monitor_client(const caf::actor& client);
  void leave_lanes(const leave_lane& gone);

  std::shared_ptr<collective_state> state_;
  known_clients known_;
  std::set<std::uint64_t> watched_;
  compat::watches watches_;
  exit_note exit_;
};

} // namespace troupe
