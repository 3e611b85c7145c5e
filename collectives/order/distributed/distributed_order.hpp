/// One rank's access to the order of one world whose ranks live in separate processes (ORD-1).
#pragma once

#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/order/distributed/codec/decision_codec.hpp>
#include <troupe/collectives/order/distributed/codec/request_codec.hpp>
#include <troupe/collectives/order/distributed/peer_requests.hpp>
#include <troupe/collectives/order/rank_order.hpp>
#include <troupe/collectives/pipeline/plans/capture_agreement.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/poller/latch.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe {

class order_connection;
struct ordered_rank;

/// One rank's access to the order of one world in one epoch: of a whole world over processes, or of a sub-world of such
/// a world. Threads: all functions may be called from any thread.
class distributed_order final : public rank_order {
public:
  /// Used by order_connection and open_world().
  distributed_order(std::shared_ptr<order_connection> through, std::shared_ptr<ordered_rank> self) noexcept
    : through_{std::move(through)}, self_{std::move(self)} {}

  /// Refuses a request that is too long to be encoded (invalid_argument), and every request after close().
  void ask(rank self, lane_request asked) override;
  void cancel(rank self, lane where, std::uint64_t position) override;
  void withdraw(rank self, std::uint64_t client, error why) override;

  /// Called once. If the turn is granted, order_connection::receive() calls it at the turn's place in the order, after
  /// everything released before and before everything released later. Otherwise \p why says why it is not granted.
  /// \p opened: the worlds of a split in which the rank is.
  using turn_work = std::function<void(const error& why, std::span<const opened_world> opened)>;
  /// Requests a place in the order that all ranks share: the k-th calls of all ranks with the same name and groups form
  /// one place. If not all ranks have called it by the deadline, it is refused (deadline_exceeded, with the missing
  /// ranks).
  void turn(turn_terms asked, turn_work work);

  /// Called once, by receive() or close(), with the agreement for a capture that begins now, or with the reason why it
  /// will not begin.
  using capture_start = std::function<void(std::shared_ptr<capture_agreement>, error)>;
  /// Requests a turn for a capture of the plan called \p name. The controller fails a capture that takes longer than
  /// \p limit. The agreement may outlive this object.
  void capture(std::string name, nanoseconds deadline, nanoseconds limit, capture_start start);

  /// Names the registered memory of the rank. Requests that use it must use the same places at all ranks (ORD-2).
  void set_registered(std::vector<std::shared_ptr<registered_pool>> pools);

  /// Opens the order of a sub-world. \p number: from the turn of its split (opened_world::number). \p pipeline: the
  /// rank's pipeline there.
  [[nodiscard]] std::shared_ptr<distributed_order> open_world(std::uint64_t number,
                                                              std::shared_ptr<rank_pipeline> pipeline);

  /// Ends this rank's part in the order of this world. Its requests that are not released, and all later ones, are
  /// answered with \p why as rejected, and so are the requests of other ranks that need this rank. Requests that the
  /// controller has released until then are launched. The latch opens when the controller has confirmed the end, after
  /// which nothing more is released, or when the connection is closed. Leaving the whole world closes the connection.
  std::shared_ptr<latch> leave(error why);
  /// Ends the order of this world in this process. Closing the whole world closes the connection at once: for an epoch
  /// that has failed, or whose order the controller has closed. A sub-world is left as by leave(). If \p for_good is
  /// false, because only the epoch ends, it only refuses later requests and ends with the whole world. Returns the
  /// latch of leave().
  std::shared_ptr<latch> close(error why, bool for_good = true);

  /// Returns the requests between this process and the others of the world.
  [[nodiscard]] const std::shared_ptr<peer_requests>& peers() const noexcept;

  /// Returns order_connection::waiting().
  [[nodiscard]] std::size_t waiting() const;

private:
  const std::shared_ptr<order_connection> through_;
  const std::shared_ptr<ordered_rank> self_;
};

} // namespace troupe
