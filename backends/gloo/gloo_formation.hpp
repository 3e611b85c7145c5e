/// Connects one rank to the other ranks of its communicator, and finds the peer that it cannot connect to.
#pragma once

#include <troupe/backends/gloo/gloo_backend.hpp>
#include <troupe/backends/gloo/gloo_endpoint.hpp>
#include <troupe/backends/gloo/gloo_store.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/running_clock.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/device/time.hpp>

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace troupe {

/// Measures how long a formation takes to connect to one peer. Gloo itself waits for minutes and does not name the
/// peer.
///
/// Only time of a running_clock counts, so that a pause of all processes is not taken for a broken link.
/// Lifetime: watches until it is destroyed. Threads: safe from any.
class gloo_connect_watchdog {
public:
  /// \p give_up: makes the connection attempt throw. It is called at most once, on a thread of this object, when the
  /// formation has waited for one peer for \p patience. It must not destroy the gloo_connect_watchdog.
  gloo_connect_watchdog(nanoseconds patience, std::function<void()> give_up);
  gloo_connect_watchdog(const gloo_connect_watchdog&) = delete;
  gloo_connect_watchdog& operator=(const gloo_connect_watchdog&) = delete;
  ~gloo_connect_watchdog();

  /// Reports that the formation starts to wait for a connection to \p peer.
  void connecting(rank peer);
  /// Reports that the formation does not wait for a connection any more.
  void connected();
  /// Returns the peer for which give_up was called, if any.
  [[nodiscard]] std::optional<rank> unreached() const;

private:
  void watch();

  const nanoseconds patience_;
  const std::function<void()> give_up_;
  mutable std::mutex mutex_; ///< Protects the members below.
  condition changed_;
  std::optional<rank> peer_;
  running_clock running_; ///< Read by the thread while peer_ is set.
  running_time since_{};  ///< Valid while peer_ is set.
  bool is_unreached_ = false;
  bool ended_ = false;
  worker thread_; ///< Last: it uses the other members.
};

/// Shares one TCP transport and one store server among the communicators of a backend. Threads: safe from any.
class gloo_network {
public:
  /// Errors: as check(const gloo_options&).
  explicit gloo_network(gloo_options options);

  /// Returns Gloo's TCP transport. Its thread runs while the transport has an owner.
  /// Errors: invalid_argument (the address is not one of this machine).
  [[nodiscard]] std::shared_ptr<gloo::transport::Device> transport();
  [[nodiscard]] gloo_store_server& stores() noexcept { return stores_; }
  [[nodiscard]] const std::string& address() const noexcept { return options_.interface_address; }

private:
  const gloo_options options_;
  gloo_store_server stores_;
  std::mutex mutex_;
  std::weak_ptr<gloo::transport::Device> transport_;
};

class gloo_mesh_device;

/// Describes the formation that a rank joins.
struct gloo_rendezvous {
  gloo_endpoint endpoint;
  /// Number of ranks that connect to this store, for this formation or for another one of the same split.
  std::uint32_t participants = 1;
  std::string prefix{}; ///< Prefix of this formation's keys in the store.
  /// True if all ranks of the world take part with their world ranks, and rank 0's process has the store.
  bool is_whole = false;
};

/// Connects one rank to the others. Threads: form(), context() and leave() one at a time; cut() from any.
class gloo_formation {
public:
  gloo_formation(std::shared_ptr<gloo_network> network, rank self, int world_size) noexcept;
  gloo_formation(const gloo_formation&) = delete;
  gloo_formation& operator=(const gloo_formation&) = delete;

  /// Blocks until all ranks are connected. Call at most once.
  /// Errors: communicator_failed (cut() was called; the store or a peer has ended; or, if at.is_whole, a peer that has
  /// joined cannot be reached for some seconds, or a message of 64 KiB does not pass between the two in that time: the
  /// error then has that peer's rank), deadline_exceeded, Gloo's own exceptions.
  void form(const gloo_rendezvous& at);
  /// Reports to the store of \p at that this rank joins no formation.
  void pass(const gloo_rendezvous& at);
  /// Returns Gloo's context. Precondition: form() has returned.
  [[nodiscard]] const std::shared_ptr<gloo::Context>& context() const noexcept { return context_; }
  /// Returns the most bytes, counted over all ranks, of an operation that goes through rank 0 in place of Gloo's ring.
  /// Between hosts rank 0 has one link. All ranks are on one host if they have reached the store by a loopback address,
  /// which the unique id names: so all have the same limit. Precondition: form() has returned.
  [[nodiscard]] std::size_t largest_through_one() const noexcept { return largest_through_one_; }
  /// Makes every call that waits for peers throw, now and later.
  void cut() noexcept;
  /// Closes the connections.
  void leave() noexcept;

  [[nodiscard]] const std::shared_ptr<gloo_network>& network() const noexcept { return network_; }

private:
  [[nodiscard]] std::shared_ptr<gloo_store> open_store(const gloo_rendezvous& at);
  void connect(const gloo_rendezvous& at, const std::shared_ptr<gloo_connect_watchdog>& reach);
  /// Exchanges a small and a large message with each peer. A connection proves only that small packets pass. The small
  /// message says that the peer has connected to all its peers: the time for the large one begins then.
  void check_links(gloo::Context& among, gloo_connect_watchdog& reach);

  const std::shared_ptr<gloo_network> network_;
  const rank self_;
  const int world_size_;
  std::shared_ptr<gloo::Context> context_;
  std::size_t largest_through_one_ = 0;
  std::size_t checked_bytes_ = 0; ///< Size of the message with which form() checks a link at present; 0: none.
  std::optional<rank> checked_;   ///< The peer with which check_links() waits for the exchange.
  std::mutex mutex_;              ///< Protects the members below.
  bool is_cut_ = false;
  std::shared_ptr<gloo_mesh_device> mesh_;
  std::weak_ptr<gloo_store> store_; ///< Exists while the rank uses it.
};

} // namespace troupe
