/// Executes operations on host memory in chunks, so that copying in, the operation and copying out overlap on separate
/// streams. (docs/design/0012-host-staging.md)
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/operation/staging_plan.hpp>
#include <troupe/collectives/pipeline/staging/host_copy.hpp>
#include <troupe/collectives/pipeline/staging/staging_stock.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace troupe {

/// Memory for one chunk, and the events after which it may be used.
struct staging_slot {
  explicit staging_slot(const std::shared_ptr<device>& where) : filled{where}, free{where} {}

  buffer memory{};
  event filled; ///< Its content may be read.
  event free;   ///< It may be filled again. Recorded before the slot is taken again.
};

/// A ring of slots that are reused in order. Threads: only the launcher's.
class staging_ring {
public:
  using maker = std::function<buffer(std::size_t size_bytes)>;

  staging_ring(std::shared_ptr<device> where, std::size_t most_slots) noexcept
    : device_{std::move(where)}, most_{most_slots} {}

  /// Returns the next slot, with at least \p size_bytes of memory. The caller must wait for the slot's event `free`
  /// before filling it. Memory that is too small is replaced by that of \p make; the old memory, which may still be in
  /// use, is moved to \p outgrown.
  [[nodiscard]] staging_slot& take(std::size_t size_bytes, const maker& make, std::vector<buffer>& outgrown);

  /// Returns the existing slots. A ring grows while its oldest slot is still in use.
  [[nodiscard]] std::deque<staging_slot>& slots() noexcept { return slots_; }

private:
  std::shared_ptr<device> device_;
  std::size_t most_;
  std::deque<staging_slot> slots_;
  std::deque<staging_slot*> order_; ///< Oldest use first.
};

/// Resources that one request needs until its outcome, beside its own buffers (BUF-1).
struct staging_hold {
  std::vector<buffer> memory{};
  std::deque<staging_slot> slots{};
  host_copies copies{};
};

/// Host staging of one rank. Order: an operation starts after all work before it in the rank's stream, and later work
/// starts after the whole operation.
/// Threads: launch() on the launcher; synchronize() and close() on a helper thread, after the last launch().
class host_staging {
public:
  /// Makes streams and events. Memory is allocated from \p stock on first use, and kept.
  host_staging(std::shared_ptr<device> where, std::shared_ptr<staging_stock> stock);
  host_staging(const host_staging&) = delete;
  host_staging& operator=(const host_staging&) = delete;
  /// Returns the pinned chunks. Precondition: close() was called.
  ~host_staging();

  /// Enqueues \p what, which is staged, around the launches of \p peers in \p main. \p held receives the resources that
  /// the request must keep.
  /// Errors: those of the device and of the communicator's launch(); a part of the operation may be enqueued then.
  void launch(const operation& what, communicator& peers, stream_ref main, staging_hold& held);

  /// Waits for the work in its own streams. Does not report a failed device, which does no more work.
  void synchronize() noexcept;
  /// Stops accesses by host functions. When close() has returned, none accesses memory.
  void close() { gate_->close(); }

private:
  struct area_in_use;

  void launch_copy(const copy& what, stream_ref main, staging_hold& held);
  void launch_chunk(const staging_plan& plan, std::size_t index, communicator& peers, stream_ref main,
                    staging_hold& held);
  void begin(stream_ref main);
  void finish(stream_ref main);
  [[nodiscard]] staging_slot& slot_for(const staged_area& area, bool transient, staging_hold& held);
  /// Enqueues copies of inputs to device memory at \p target, in stream `in_`.
  void bring_in(const staged_area& area, std::byte* target, staging_hold& held);
  /// Enqueues copies of results from device memory at \p source, in stream `out_`.
  void take_out(const staged_area& area, const std::byte* source, staging_hold& held);
  /// Calls \p use(pieces on the host, offset, size) for the area, in parts that fit a pinned chunk.
  template <class Use>
  void for_each_bounce(const staged_area& area, const Use& use) const;
  [[nodiscard]] staging_slot& bounce_slot(staging_ring& ring, staging_hold& held);

  std::shared_ptr<device> device_;
  std::shared_ptr<staging_stock> stock_;
  std::shared_ptr<memory_gate> gate_ = std::make_shared<memory_gate>();
  // Host functions have streams of their own, so that they overlap with the copies to and from the device.
  stream fill_;  ///< Pageable memory to pinned chunks.
  stream in_;    ///< To the device.
  stream out_;   ///< From the device.
  stream empty_; ///< Pinned chunks to pageable memory.
  event begun_;
  event brought_;
  event taken_;
  event emptied_;
  staging_ring inputs_;
  staging_ring results_;
  staging_ring bounces_in_;
  staging_ring bounces_out_;
};

} // namespace troupe
