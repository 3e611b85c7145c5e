/// The interface through which a world sends requests to ranks in other processes, and serves theirs.
#pragma once

#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/remote_buffer.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/collectives/order/codec/part_codec.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace troupe {

/// One request to all ranks of a world, which live in separate processes.
struct whole_request {
  ticket name{};
  std::vector<operation> parts{}; ///< By rank. Parts of other processes have remote buffers as operands.
  nanoseconds deadline{0};        ///< Time from now to the reply.
  reply_promise reply{};
  call_site site{};
};

/// The memory that a rank's process can export for another process (peer_requests::lend()).
enum class lent_kind : std::uint8_t {
  memory,        ///< Device memory.
  metrics,       ///< Host memory with the process's metrics in the text format of Prometheus.
  flight_record, ///< Host memory with its flight record, as JSON.
};

/// What a rank's process does for others. Its functions may be called from any thread, and must not block.
struct rank_services {
  /// Passes a request to the rank, which validates it. If \p objection is set, the request is not validated, and all
  /// ranks refuse it for this reason.
  std::function<void(rank_request asked, error objection, reply_promise reply, std::uint64_t client)> ask{};
  /// The objects that requests can name.
  local_names here{};
  using lent = std::function<void(buffer memory, const error& why)>;
  /// Allocates the memory in another thread, writes the report if \p what is one, and calls \p done. \p size_bytes:
  /// for lent_kind::memory.
  std::function<void(lent_kind what, std::size_t size_bytes, lent done)> lend{};
  using captured = std::function<void(std::shared_ptr<captured_plan> plan, const error& why)>;
  /// Captures the rank's steps at their place in the order. If \p objection is set, the capture fails at all ranks
  /// for this reason.
  std::function<void(std::vector<operation> steps, plan_options options, error objection, captured done)> capture{};
};

/// The ranks of a world over processes in one epoch, as one of its processes reaches them. Threads: all functions may
/// be called from any thread.
class remote_ranks {
public:
  using handle_promise = std::shared_ptr<value_promise<remote_buffer>>;

  remote_ranks() = default;
  remote_ranks(const remote_ranks&) = delete;
  remote_ranks& operator=(const remote_ranks&) = delete;
  virtual ~remote_ranks() = default;

  /// Begins to serve requests of other processes to this process's rank, first those that have arrived already.
  virtual void serve(rank_services what) = 0;
  /// Asks all ranks. Answers with invalid_argument, before anything is sent, if a part cannot be sent: it has events, a
  /// buffer of this process for a rank of another, or more parts than fit in a message.
  virtual void ask(whole_request asked) = 0;
  /// Asks the process of \p target for the handle of the memory that it has exported under \p name. Errors: missing (it
  /// has not), deadline_exceeded (it has not answered).
  virtual void find(rank target, std::string_view name, nanoseconds deadline, handle_promise reply) = 0;
};

} // namespace troupe
