/// The seam between troupe and whatever moves data between ranks.
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

/// Names one formation of a world to all its ranks. It is a capability: never log or dump it (SEC-1).
struct unique_id {
  std::array<std::byte, 128> bytes{};
};

/// A rank's place in a communicator that is split off another: that of its color.
struct split_seat {
  int color = 0; ///< From 0.
  rank self;     ///< Ranks of one color count from 0, without a gap.
  int world_size = 1;
};

/// A rank's place in a communicator that is made of one that has failed, without some of its ranks.
struct shrink_seat {
  std::vector<rank> without; ///< Those left out, by their ranks in the failed one, ascending; all say the same.
  rank self;                 ///< Those who come count from 0, without a gap, in their old order.
  int world_size = 1;
};

/// What a communicator's library has to tell about a failure, for people.
struct library_words {
  std::string last_error{}; ///< Of the library's last error; NCCL keeps one for the process, which may be an older one.
  std::string ask{};        ///< A command that asks the library how its communicators are, of all processes.
};

/// One rank's end of a communicator.
///
/// Life: constructed (cheap) → init() → launch()… → destroy() or abort().
/// Threads: init(), abort(), destroy() on helper threads; launch() and check() on the device's launcher
/// thread only (BLK-1). abort() may run while init() or launch() of the same object is stuck, and makes it return.
class communicator {
public:
  communicator(rank self, int world_size, std::shared_ptr<device> where) noexcept
    : self_{self}, world_size_{world_size}, device_{std::move(where)} {}
  communicator(const communicator&) = delete;
  communicator& operator=(const communicator&) = delete;
  virtual ~communicator() = default;

  /// Meets the other ranks; returns when all have come. May take long or for ever: abort() ends it.
  virtual void init() = 0;

  /// Enqueues a validated collective. Returns when it is in the stream.
  /// Errors: thrown when it could not be enqueued; the communicator must then be considered failed.
  virtual void launch(const operation& what, stream_ref stream) = 0;
  /// Enqueues several by one launch, in one order with whatever launch() enqueues. All ranks do so with the same
  /// operations in the same order; one that takes no part in some of them leaves these out. Operations of a group lie
  /// beside the rest. No copies, no barriers, and none that overlaps another in memory with a writer among them.
  /// Order: none among \p all. Errors: as launch(), of all of them: part may have been enqueued (GRP-1).
  virtual void launch_together(std::span<const operation* const> all, stream_ref stream);
  /// Whether launches may be captured; the same for all ranks. Where not, nothing is launched into a capture.
  [[nodiscard]] virtual bool can_be_captured() const noexcept { return true; }

  /// Throws if an error has been seen asynchronously.
  virtual void check() = 0;

  /// Makes everything of this rank end: operations in flight leave the device, successful or not.
  /// Their completion then means nothing. Idempotent.
  virtual void abort() = 0;

  /// Gives everything back after all work has finished and all ranks stopped launching. Idempotent; nothing after
  /// abort().
  virtual void destroy() = 0;

  /// A communicator of those of this one's ranks that name the same color, not yet formed: its init() meets all ranks
  /// of this one, each of which must call split() or split_none(), the k-th time together. Nothing may be in flight
  /// meanwhile. Where its init() is stuck, only the abort of this one ends it.
  /// Errors: unsupported.
  [[nodiscard]] virtual std::shared_ptr<communicator> split(const split_seat& as);
  /// Takes part in a split, in no color. Blocks as init() does.
  virtual void split_none();

  /// A communicator without some of this one's ranks, not yet formed, while this one may have failed with operations
  /// in flight. Its init() ends what is in flight here of this rank, then meets the others that stay, each of which
  /// does the same. From then on nothing is launched here; but it must be aborted all the same, and where that init()
  /// is stuck, only that abort ends it.
  /// Errors: unsupported; communicator_failed (it was aborted, or has never formed).
  [[nodiscard]] virtual std::shared_ptr<communicator> shrink(const shrink_seat& as);
  /// The same with all of its ranks, at their places: it is revoked, and all split off it.
  [[nodiscard]] virtual std::shared_ptr<communicator> revoke_and_split();

  /// Memory of this rank's device, apt for registration; not yet registered. Meets nobody.
  /// Errors: unsupported, out_of_memory.
  [[nodiscard]] virtual std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes);
  /// Makes \p region, which allocate_region() of this one gave, known to all ranks; all do so together, with one size,
  /// while nothing is in flight. Blocks. It stays registered until abort() or destroy().
  virtual void register_region(registered_region& region);

  /// Gives device memory back that is needed only while something is launched; returns how many bytes. All ranks do so
  /// together, while nothing is in flight, and then launch nothing before resume(). Blocks; abort() ends it.
  /// Errors: unsupported; afterwards the communicator must be considered failed, as after a resume() that throws.
  virtual std::size_t suspend();
  /// Takes that memory again, at the same addresses. All ranks do so together. Blocks; abort() ends it.
  virtual void resume();

  /// Empty where the library says nothing.
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
  /// Version and origin for people, e.g. "NCCL 2.28.9 from /usr/lib/libnccl.so.2".
  [[nodiscard]] virtual std::string version() const = 0;

  /// What worlds over \p devices, all of this process, can be asked for. Of a world over several processes each process
  /// knows its own devices only. Cheap enough to be asked for each world; neither forms nor waits for anything.
  /// Errors: the driver's.
  [[nodiscard]] virtual troupe::capabilities examine(std::span<const std::shared_ptr<device>> devices) = 0;

  /// A fresh name for one formation. Made once and given to every rank.
  [[nodiscard]] virtual unique_id make_unique_id() = 0;

  /// Rank \p self's end of the communicator that \p id names; call init() on it.
  /// Errors: invalid_argument (rank outside the world).
  [[nodiscard]] virtual std::shared_ptr<communicator> create(const unique_id& id, rank self, int world_size,
                                                             std::shared_ptr<device> where) = 0;
};

} // namespace troupe
