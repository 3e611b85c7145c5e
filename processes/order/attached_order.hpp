/// The access of a process without a rank to the ranks of a world over processes.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/processes/order/codec/decision_codec.hpp>
#include <troupe/processes/order/codec/request_codec.hpp>
#include <troupe/processes/order/peer_requests.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace troupe {

/// The counterpart of an order_server, for a process without a rank in one epoch: exchanges messages with the ranks, in
/// batches as an order_connection does. Each request is sent at once.
/// Threads: all functions may be called from any thread; receive() must be called in the order in which batches arrive.
class attached_order {
public:
  /// \p send: sends a batch to the controller's order_server. Called once at a time; must not block or throw.
  attached_order(process_address self, int world_size, epoch of, std::function<void(std::string)> send);
  ~attached_order();

  /// Requests to all ranks, and their replies.
  [[nodiscard]] const std::shared_ptr<peer_requests>& peers() const noexcept { return peers_; }
  /// Handles a batch. Errors: internal (it cannot be read): the connection is unusable in this epoch. A batch of an
  /// older epoch is dropped.
  [[nodiscard]] error receive(std::string_view batch);
  /// Answers what is pending, and all later requests, with \p why, and sends nothing more.
  void close(const error& why);

private:
  struct outgoing;

  const epoch epoch_;
  const std::shared_ptr<outgoing> out_; ///< Shared with the sender of peers_, which may outlive this object.
  const std::shared_ptr<peer_requests> peers_;
  decision_reader in_;
  std::uint64_t received_ = 0;
};

} // namespace troupe
