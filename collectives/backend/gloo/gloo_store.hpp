/// A rank's client of the store of its formation, with the interface that Gloo asks for.
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

/// Connects to the server at its first use. Keys live as long as the formation, and their values never change.
/// Errors of all blocking calls: communicator_failed (the server has ended or refused the secret or a size, or
/// interrupt() was called), deadline_exceeded. Threads: one at a time; interrupt() from any.
class gloo_store final : public gloo::rendezvous::Store {
public:
  /// \p comers: number of ranks that will call formed(). \p prefix is put before all keys.
  gloo_store(const gloo_door& door, std::uint32_t comers, std::string prefix);
  /// Sets the \p reach to notify when the store is used, because Gloo does not connect to a peer then. Call before the
  /// first use.
  void tell(std::weak_ptr<gloo_reach> reach) { reach_ = std::move(reach); }
  /// Connects now instead of at the first use.
  void connect();

  void set(const std::string& key, const std::vector<char>& data) override;
  /// Blocks until some rank has set the key.
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  /// Reports that this rank needs the store no more. The last rank's report ends the formation.
  void formed();

  /// Makes every blocking call throw, now and later.
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
