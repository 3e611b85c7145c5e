/// The communicator of a world of one rank: it has no peers and never touches NCCL.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/operation/reduction.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace troupe {

/// Multiplies in stream order with the host's arithmetic: copies a piece to pinned memory, multiplies it there in a
/// host function, and copies it to its destination. Much slower than a kernel, but correct for every dtype on every
/// driver; worlds of one rank exist for tests and single-GPU runs. Threads: the launcher's only.
class solo_scale {
public:
  explicit solo_scale(std::shared_ptr<device> where) noexcept : device_{std::move(where)} {}

  /// Enqueues the multiplication. \p to and \p from hold \p count elements and may be the same.
  void enqueue(std::byte* to, const std::byte* from, std::size_t count, dtype type, const factor& by,
               stream_ref stream);

private:
  std::shared_ptr<device> device_;
  buffer scratch_; ///< Pinned memory for a factor and a piece. Allocated on first use.
};

/// Executes the operations of a world of one rank: no-ops in place, otherwise one copy in stream order. A pre_mul_sum
/// is a multiplication.
class solo_communicator final : public communicator {
public:
  explicit solo_communicator(const std::shared_ptr<device>& where) noexcept
    : communicator{rank{0}, 1, where}, scale_{where} {}

  void init() override {}
  void check() override {}
  void abort() override {}
  void destroy() override {}
  [[nodiscard]] std::shared_ptr<communicator> split(const split_spec&) override {
    return std::make_shared<solo_communicator>(where());
  }
  void split_none() override {}
  [[nodiscard]] std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes) override;
  void register_region(registered_region&) override {}
  std::size_t suspend() override { return 0; }
  void resume() override {}

private:
  bool do_launch(const operation& what, stream_ref stream, completion_word at_end) override;
  bool do_launch_together(std::span<const operation* const> all, stream_ref stream, completion_word at_end) override;

  solo_scale scale_;
};

} // namespace troupe
