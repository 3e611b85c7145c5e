/// One rank's connections to the other ranks of its communicator.
#pragma once

#include <troupe/collectives/backend/gloo/gloo_door.hpp>
#include <troupe/collectives/backend/gloo/gloo_mesh.hpp>
#include <troupe/collectives/backend/gloo/gloo_network.hpp>
#include <troupe/collectives/backend/gloo/gloo_store.hpp>

#include <gloo/context.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace troupe {

/// Where a formation is asked for.
struct gloo_meeting {
  gloo_door door;
  std::uint32_t comers = 1; ///< The ranks that come to this door, to this formation or another of a split.
  std::string prefix{};     ///< Of this formation's keys.
  bool is_whole = false;    ///< Of all ranks of the world, by their numbers there, at a store of rank 0's.
};

/// Threads: form(), context() and leave() one at a time; cut() from any.
class gloo_formation {
public:
  gloo_formation(std::shared_ptr<gloo_network> network, rank self, int world_size) noexcept;
  gloo_formation(const gloo_formation&) = delete;
  gloo_formation& operator=(const gloo_formation&) = delete;

  /// Blocks until all ranks are connected. Once.
  /// Errors: communicator_failed (cut(), the store or a peer has gone; with the peer's rank where it is a whole one and
  /// a peer that has come cannot be reached for some seconds), deadline_exceeded, Gloo's own.
  void form(const gloo_meeting& at);
  /// Comes to \p at only to say that it needs no formation.
  void pass(const gloo_meeting& at);
  /// After form().
  [[nodiscard]] const std::shared_ptr<gloo::Context>& context() const noexcept { return context_; }
  /// Whatever waits for peers throws, now and later.
  void cut() noexcept;
  /// Gives the connections back.
  void leave() noexcept;

  [[nodiscard]] const std::shared_ptr<gloo_network>& network() const noexcept { return network_; }

private:
  [[nodiscard]] std::shared_ptr<gloo_store> come(const gloo_meeting& at);
  void connect(const gloo_meeting& at, const std::shared_ptr<gloo_reach>& reach);

  const std::shared_ptr<gloo_network> network_;
  const rank self_;
  const int world_size_;
  std::shared_ptr<gloo::Context> context_;
  std::mutex guard_; ///< Guards what follows.
  bool is_cut_ = false;
  std::shared_ptr<gloo_mesh_device> mesh_;
  std::shared_ptr<gloo_store> store_;
};

} // namespace troupe
