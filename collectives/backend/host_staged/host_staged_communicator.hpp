/// A communicator for device memory that uses a communicator of host memory.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/host_staged/host_staged_memory.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace troupe {

/// Each launch is a turn. The device's stream copies the inputs to the host and waits. The host's stream runs the inner
/// communicator's operation and signals the device's stream, which copies the results back. abort() ends all waits.
/// BUF-1: after abort() has returned, no operation's memory is accessed any more. Exception: if earlier work in the
/// device's stream delays the operations, abort() waits for one second only, and they write undefined results later.
/// Threads: as communicator.
class host_staged_communicator final : public communicator {
public:
  /// \p peers is on a mock device and not yet formed. \p where is the device whose memory is moved.
  host_staged_communicator(std::shared_ptr<communicator> peers, std::shared_ptr<device> where,
                           std::shared_ptr<host_staged_stock> stock);
  ~host_staged_communicator() override;

  void init() override { peers_->init(); }
  void launch(const operation& what, stream_ref stream) override;
  void launch_together(std::span<const operation* const> all, stream_ref stream) override;
  void check() override { peers_->check(); }
  void abort() override;
  void destroy() override { peers_->destroy(); }
  [[nodiscard]] bool can_be_captured() const noexcept override { return false; }

  [[nodiscard]] std::shared_ptr<communicator> split(const split_seat& as) override;
  void split_none() override { peers_->split_none(); }
  [[nodiscard]] std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes) override;
  /// Nothing is registered on the host's side, but the ranks still synchronize.
  void register_region(registered_region& region) override { peers_->register_region(region); }
  [[nodiscard]] library_words last_words() const override { return peers_->last_words(); }

private:
  void enqueue_turn(std::span<const operation* const> all, stream_ref stream);
  /// Returns memory with room for a launch of this many bytes.
  [[nodiscard]] host_staged_memory& room_for(std::size_t size_bytes);
  void release_all() noexcept;
  void await_device();

  const std::shared_ptr<communicator> peers_;
  const std::shared_ptr<host_staged_stock> stock_;
  stream host_side_;
  std::mutex guard_; ///< Protects the pointers to memory: abort() may run concurrently.
  std::unique_ptr<host_staged_memory> memory_;
  std::vector<std::unique_ptr<host_staged_memory>> former_; ///< Too small, and possibly still in use.
  std::atomic<bool> ended_{false};
};

} // namespace troupe
