/// The interface through which a rank's requests enter the order of a world (ORD-1).
#pragma once

#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>

#include <cstdint>
#include <memory>
#include <optional>

namespace troupe {

/// A validated request of one rank, to be matched with those of its peers.
struct lane_request {
  operation what;
  ticket name;
  nanoseconds deadline{0}; ///< Time from now to the reply.
  reply_promise reply;
  lane where{};
  std::uint64_t client = 0;
  std::optional<std::uint64_t> position{};
  call_site site{};
  /// Why the rank cannot take part, or null. Its operation may then lack memory. When all ranks have asked, the
  /// operation is refused at all of them with this reason. For requests to all ranks and for agrees: a rank
  /// refuses its own other requests by itself.
  std::unique_ptr<error> objection{};
};

/// The order of one world in one epoch, as a rank's requests use it. The whole interface is world_order. Threads: all
/// functions may be called from any thread; the requests of one thread keep their order.
class rank_order {
public:
  rank_order() = default;
  rank_order(const rank_order&) = delete;
  rank_order& operator=(const rank_order&) = delete;
  virtual ~rank_order() = default;

  /// Requests one rank's part of an operation. The part is released when its peers have requested their parts. Never
  /// blocks.
  virtual void ask(rank self, lane_request asked) = 0;
  /// Withdraws a request that has not been released. Does nothing if there is no such request.
  virtual void cancel(rank self, lane where, std::uint64_t position) = 0;
  /// Withdraws all waiting requests of a client of \p self that has ended. The peers of the requests are informed, and
  /// the client's lanes become free.
  virtual void withdraw(rank self, std::uint64_t client, error why) = 0;
};

} // namespace troupe
