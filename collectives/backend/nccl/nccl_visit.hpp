/// A thread inside NCCL, with a communicator that may be aborted meanwhile. For nccl_communicator alone.
#pragma once

#include <troupe/collectives/backend/nccl/nccl_communicator.hpp>

#include <chrono>
#include <cstdint>
#include <mutex>

namespace troupe {

/// One thread's stay inside NCCL. Refused unless the communicator is ready.
class nccl_communicator::visit {
public:
  /// How long others let a call leave that is inside: a launch takes microseconds, so what stays is stuck.
  static constexpr std::chrono::milliseconds time_to_leave{10};
  /// Of many, or the last: nobody else enters any more, and those who are inside are waited for.
  enum class kind : std::uint8_t { usual, last };

  explicit visit(nccl_communicator& host, kind which = kind::usual) : host_{host} {
    std::unique_lock lock{host_.guard_};
    host_.require_ready();
    if (which == kind::last) {
      host_.phase_ = phase::spent;
      if (!host_.left_.wait_for(lock, time_to_leave, [&] { return host_.inside_ == 0; }))
        throw exception{error{.code = errc::communicator_failed,
                              .text = "a call on the failed communicator does not return, so that no other can be "
                                      "made of it",
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
