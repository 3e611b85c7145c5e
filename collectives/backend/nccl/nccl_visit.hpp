/// Counts a thread as inside NCCL, with a communicator that may be aborted meanwhile. For nccl_communicator only.
#pragma once

#include <troupe/collectives/backend/nccl/nccl_communicator.hpp>

#include <chrono>
#include <cstdint>
#include <mutex>

namespace troupe {

/// One thread's stay inside NCCL. The constructor throws unless the communicator is ready.
class nccl_communicator::visit {
public:
  /// Time for a running call to leave. A launch takes microseconds, so a call that stays longer is stuck.
  static constexpr std::chrono::milliseconds time_to_leave{10};
  /// usual: other calls may run at the same time. last: no other call enters any more, and running calls are waited
  /// for.
  enum class kind : std::uint8_t { usual, last };

  explicit visit(nccl_communicator& host, kind which = kind::usual) : host_{host} {
    std::unique_lock lock{host_.guard_};
    host_.require_ready();
    if (which == kind::last) {
      host_.phase_ = phase::spent;
      if (!host_.left_.wait_for(lock, time_to_leave, [&] { return host_.inside_ == 0; }))
        throw exception{
            error{.code = errc::communicator_failed,
                  .text = "a call on the failed communicator has not returned, so no other can be derived from it",
                  .rank = host_.self()}};
      if (host_.phase_ == phase::ended) throw exception{host_.aborted("a recovery")};
    }
    handle_ = host_.handle_;
    ++host_.inside_;
  }
  visit(const visit&) = delete;
  visit& operator=(const visit&) = delete;
  ~visit() {
    const std::lock_guard lock{host_.guard_};
    --host_.inside_;
    host_.left_.notify_all();
  }
  [[nodiscard]] ncclComm_t handle() const noexcept { return handle_; }

private:
  nccl_communicator& host_;
  ncclComm_t handle_ = nullptr;
};

} // namespace troupe
