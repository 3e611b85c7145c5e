/// The interface between troupe and a library that moves data between ranks.
#pragma once

#include <troupe/collectives/backend/registered_region.hpp>
#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/device.hpp>
#include <troupe/device/stream.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A rank's place in a communicator that is split off another: its color and its rank among the ranks of that color.
struct split_seat {
  int color = 0; ///< 0 or greater.
  rank self;     ///< Ranks of one color count from 0, without a gap.
  int world_size = 1;
};

/// A rank's place in a communicator that replaces a failed one, without some of its ranks.
struct shrink_seat {
  std::vector<rank> without; ///< The excluded ranks, by their ranks in the failed one, ascending; equal at all ranks.
  rank self;                 ///< The remaining ranks count from 0, without a gap, in their old order.
  int world_size = 1;
};

/// Information that a communicator's library gives about a failure, for people.
struct library_words {
  std::string last_error{}; ///< The library's last error. NCCL keeps one per process, so it may be an older one.
  std::string ask{};        ///< A command that queries the library's communicators, of all processes.
};

/// One rank's end of a communicator.
///
/// Lifetime: constructed (cheap) → init() → launch()… → destroy() or abort().
/// Threads: init(), abort() and destroy() are called on helper threads, launch() and check() only on the device's
/// launcher thread (BLK-1). abort() may run while init() or launch() of the same object is stuck, and makes it return.
class communicator {
public:
  communicator(rank self, int world_size, std::shared_ptr<device> where) noexcept
    : self_{self}, world_size_{world_size}, device_{std::move(where)} {}
  communicator(const communicator&) = delete;
  communicator& operator=(const communicator&) = delete;
  virtual ~communicator() = default;

  /// Connects to the other ranks and returns when all have joined. May take long or block indefinitely; abort() ends
  /// it.
  virtual void init() = 0;

  /// Enqueues a validated collective. Returns when it is in the stream. By default: as launch_together() of it alone.
  /// Errors: thrown if it could not be enqueued; the communicator must then be considered failed.
  virtual void launch(const operation& what, stream_ref stream);
  /// Enqueues several operations by one launch, in the same order as the operations of launch(). All ranks do so with
  /// the same operations in the same order; a rank that takes no part in an operation omits it. The parts of a group
  /// are treated like the other operations. Copies and barriers are not allowed, nor are operations that overlap in
  /// memory with a writer among them.
  /// Order: none among \p all. Errors: as launch(), for all of them: a part of them may have been enqueued (GRP-1).
  virtual void launch_together(std::span<const operation* const> all, stream_ref stream);
  /// Returns whether launches may be captured; the same at all ranks. If false, nothing is launched into a capture.
  [[nodiscard]] virtual bool can_be_captured() const noexcept { return true; }

  /// Throws if an asynchronous error has been observed.
  virtual void check() = 0;

  /// Ends all work of this rank: operations in flight leave the device, successful or not. Their completion then means
  /// nothing. Idempotent.
  virtual void abort() = 0;

  /// Releases all resources after all work has finished and all ranks have stopped launching. Idempotent. Has no effect
  /// after abort().
  virtual void destroy() = 0;

  /// Returns a communicator, not yet formed, of this one's ranks that name the same color. Its init() synchronizes with
  /// all ranks of this one. Each of them must call split() or split_none(); the k-th calls of all ranks belong
  /// together. Nothing may be in flight meanwhile. If its init() is stuck, only the abort of this communicator ends it.
  /// Errors: unsupported.
  [[nodiscard]] virtual std::shared_ptr<communicator> split(const split_seat& as);
  /// Takes part in a split without joining a color. Blocks as init() does.
  virtual void split_none();

  /// Returns a communicator, not yet formed, without some of this one's ranks. This one may have failed with operations
  /// in flight. The init() of the new one ends this rank's operations in flight here, then connects to the other
  /// remaining ranks, each of which does the same. From then on nothing is launched here. This communicator must still
  /// be aborted; if that init() is stuck, only that abort ends it.
  /// Errors: unsupported; communicator_failed (it was aborted, or was never formed).
  [[nodiscard]] virtual std::shared_ptr<communicator> shrink(const shrink_seat& as);
  /// Does the same with all of this one's ranks, which keep their numbers: this communicator is revoked, and all ranks
  /// split off it.
  [[nodiscard]] virtual std::shared_ptr<communicator> revoke_and_split();

  /// Returns memory of this rank's device that can be registered, not yet registered. Communicates with no other rank.
  /// Errors: unsupported, out_of_memory.
  [[nodiscard]] virtual std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes);
  /// Registers \p region, which allocate_region() of this communicator returned, with all ranks. All ranks call it
  /// together, with one size, while nothing is in flight. Blocks. The region stays registered until abort() or
  /// destroy().
  virtual void register_region(registered_region& region);

  /// Releases device memory that only launches need, and returns its size in bytes. All ranks call it together, while
  /// nothing is in flight, and launch nothing before resume(). Blocks; abort() ends it.
  /// Errors: unsupported. After an error, here or from resume(), the communicator must be considered failed.
  virtual std::size_t suspend();
  /// Takes that memory again, at the same addresses. All ranks call it together. Blocks; abort() ends it.
  virtual void resume();

  /// Returns what the library reports about a failure. Empty if it reports nothing.
  /// Threads: any, at any time, also while another call is stuck and after abort(). Never blocks.
  [[nodiscard]] virtual library_words last_words() const { return {}; }

  [[nodiscard]] rank self() const noexcept { return self_; }
  [[nodiscard]] int world_size() const noexcept { return world_size_; }
  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept { return device_; }

private:
  rank self_;
  int world_size_;
  std::shared_ptr<device> device_;
};

/// A kind of communicator: mock, nccl or gloo. Threads: safe from any.
class backend {
public:
  backend() = default;
  backend(const backend&) = delete;
  backend& operator=(const backend&) = delete;
  virtual ~backend() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Returns version and origin for people, e.g. "NCCL 2.28.9 from /usr/lib/libnccl.so.2".
  [[nodiscard]] virtual std::string version() const = 0;

  /// Returns the capabilities of worlds over \p devices, all of this process. In a world over several processes each
  /// process knows its own devices only. Cheap enough to call for each world. Forms nothing and waits for nothing.
  /// Errors: the driver's.
  [[nodiscard]] virtual troupe::capabilities examine(std::span<const std::shared_ptr<device>> devices) = 0;

  /// Makes a new id for one formation. It is made once and given to every rank.
  [[nodiscard]] virtual unique_id make_unique_id() = 0;

  /// Makes the end of rank \p self of the communicator that \p id names. The caller then calls init() on it.
  /// Errors: invalid_argument (rank outside the world).
  [[nodiscard]] virtual std::shared_ptr<communicator> create(const unique_id& id, rank self, int world_size,
                                                             std::shared_ptr<device> where) = 0;
};

} // namespace troupe
