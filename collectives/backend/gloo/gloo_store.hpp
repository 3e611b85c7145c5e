/// A rank's side of its formation's store, as Gloo wants one.
#pragma once

#include <troupe/collectives/backend/gloo/gloo_bell.hpp>
#include <troupe/collectives/backend/gloo/gloo_door.hpp>
#include <troupe/collectives/backend/gloo/gloo_reach.hpp>
#include <troupe/collectives/backend/gloo/gloo_wire.hpp>
#include <troupe/collectives/backend/gloo/open_file.hpp>

#include <gloo/rendezvous/store.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// Connects at its first use. Keys live as long as the formation does, and never change.
/// Errors, of all that blocks: communicator_failed (the server has gone, refused the secret or a size, or
/// interrupt()), deadline_exceeded. Threads: one at a time; interrupt() from any.
class gloo_store final : public gloo::rendezvous::Store {
public:
  /// \p comers: the ranks that say formed(), in all. \p prefix comes before all keys.
  gloo_store(const gloo_door& door, std::uint32_t comers, std::string prefix);
  /// \p reach is told when the store is used: Gloo does not connect with a peer then. Before the first use.
  void tell(std::weak_ptr<gloo_reach> reach) { reach_ = std::move(reach); }
  /// Connects now, and not at the first use.
  void connect();

  void set(const std::string& key, const std::vector<char>& data) override;
  /// Blocks until somebody has set it.
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  /// Says that this rank needs the store no more; the last one's word ends the formation.
  void formed();

  /// Whatever blocks here throws, now and later.
  void interrupt() noexcept;

private:
  using time_point = std::chrono::steady_clock::time_point;

  void connect(time_point until);
  void ask(gloo_wire::request what, const std::string& key, const std::vector<char>& value, time_point until);
  void expect_agreement(time_point until);
  void send_all(const void* from, std::size_t size_bytes, time_point until);
  void receive_all(void* to, std::size_t size_bytes, time_point until);
  void await(short what, time_point until);
  [[nodiscard]] std::vector<char> fetch(const std::string& key, time_point until);

  const gloo_door door_;
  const std::uint32_t comers_;
  const std::string prefix_;
  gloo_bell bell_;
  std::atomic<bool> interrupted_{false};
  open_file socket_;
  std::map<std::string, std::vector<char>> known_;
  std::weak_ptr<gloo_reach> reach_;
};

} // namespace troupe
