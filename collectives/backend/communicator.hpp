/// The interface between troupe and a library that moves data between ranks.
#pragma once

#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/device.hpp>
#include <troupe/device/stream.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A rank's arguments of a split: its color, and its rank and the world size in the communicator of that color.
struct split_spec {
  int color = 0; ///< At least 0. Ranks with the same color form one communicator.
  rank self;     ///< The ranks of one color are numbered from 0, without gaps.
  int world_size = 1;
};

/// A rank's arguments of a shrink: the excluded ranks, and its rank and the world size in the new communicator.
struct shrink_spec {
  std::vector<rank> without; ///< The excluded ranks, as numbered in the old one, ascending. The same at all ranks.
  rank self;                 ///< The remaining ranks are numbered from 0, without gaps, in their old order.
  int world_size = 1;
};

/// Texts for users in which a communicator's library describes a failure.
struct library_diagnostics {
  std::string last_error{}; ///< The library's last error. NCCL keeps one per process, so it may be an older one.
  std::string ask{};        ///< A shell command that queries the library's communicators in all processes.
};

/// The capture_objection() of backends that move data through host memory.
inline constexpr std::string_view objection_of_host_memory =
    "operations through host memory cannot be captured: submit them as requests";

/// What a communicator has launched, by the way that it went. Parts of a group are operations of their own.
struct launch_counts {
  std::uint64_t one_shot_launches = 0;
  std::uint64_t one_shot_operations = 0;
  std::uint64_t library_launches = 0;
  std::uint64_t library_operations = 0;

  friend bool operator==(const launch_counts&, const launch_counts&) = default;
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

  /// Launches a first operation in \p stream, so that no request pays for one-time work of the library (connections,
  /// loading of kernels). Does not wait until the operation is done. All ranks call it once, after init() and before
  /// anything else is launched, on the thread of init(). Where a communicator is used without, the first requests pay.
  /// The default implementation does nothing.
  virtual void warm_up(stream_ref stream);
  /// Enqueues in \p stream what kernels of the communicator's own need before the first of them, if it has such. Called
  /// in place of warm_up() where a world is split from another one; warm_up() includes it. The default implementation
  /// does nothing.
  virtual void prepare_kernels(stream_ref stream);

  /// Enqueues a validated collective. Returns when it is in the stream.
  /// Returns whether the launch itself writes \p at_end, which may be null: at its end in the stream, once its
  /// operations are done and have succeeded as far as their protocol can tell. The caller must then not mark the stream
  /// for this launch. If not, nothing will write the word. Call with a word only if no earlier write to it can still
  /// follow. Errors: thrown if it could not be enqueued; the communicator must then be considered failed.
  bool launch(const operation& what, stream_ref stream, completion_word at_end = {}) {
    return do_launch(what, stream, at_end);
  }
  /// Enqueues several operations in one launch. All ranks make the same launches in the same order, each with the same
  /// operations in the same order; a rank that takes no part in an operation omits it. The parts of a group are treated
  /// like the other operations. Copies and barriers are not allowed. If one operation writes memory, no other operation
  /// of the launch may use it. Returns as launch() does.
  /// Order: the operations may run in any order. Errors: as launch(); some operations may have been enqueued (GRP-1).
  bool launch_together(std::span<const operation* const> all, stream_ref stream, completion_word at_end = {}) {
    return do_launch_together(all, stream, at_end);
  }
  /// Returns why launches cannot be captured; empty if they can. It is the same at all ranks.
  [[nodiscard]] virtual std::string_view capture_objection() const noexcept { return {}; }

  /// Throws if an asynchronous error has been observed.
  virtual void check() = 0;

  /// Called when this rank has declared the communicator failed, or closes it after its work has finished. Only a
  /// launch in progress may still follow. Operations that wait for peers in kernels of the communicator's own end
  /// within microseconds and write no completion word. Those of a library such as NCCL run on until abort().
  /// Idempotent. The default implementation does nothing. Threads: any, at any time, also while another call is stuck
  /// and after abort() or destroy(). Never blocks.
  virtual void interrupt() noexcept {}

  /// Ends all work of this rank: operations in flight leave the device, successful or not. Their completion then does
  /// not mean success. Idempotent.
  virtual void abort() = 0;

  /// Called when no work of this rank is in flight and none will follow: its stream has been synchronized behind the
  /// last launch, or its device has failed, and nobody launches any more. Memory that such work stores to may then be
  /// released. Without this call
  /// it is kept for good. Idempotent. The default implementation does nothing. Threads: helper threads, also after
  /// abort(). May block.
  virtual void drained() noexcept {}

  /// Releases all resources after all work has finished and all ranks have stopped launching. Idempotent. Has no effect
  /// after abort().
  virtual void destroy() = 0;

  /// Returns a communicator, not yet formed, of those ranks of this one that pass the same color. Its init()
  /// synchronizes with all ranks of this one. Each of them must call split() or split_none(); the k-th calls of all
  /// ranks match. No operation may be in flight meanwhile. If the init() is stuck, only abort() of this communicator
  /// ends it.
  /// Errors: unsupported.
  [[nodiscard]] virtual std::shared_ptr<communicator> split(const split_spec& as);
  /// Takes part in a split without joining a new communicator. Blocks as init() does.
  virtual void split_none();

  /// Returns a communicator, not yet formed, without some of this one's ranks. This one may have failed with operations
  /// in flight. The init() of the new one ends this rank's operations in flight here, then connects to the other
  /// remaining ranks, each of which does the same. From then on nothing is launched here. This communicator must still
  /// be aborted; if that init() is stuck, only that abort ends it.
  /// Errors: unsupported; communicator_failed (it was aborted, or was never formed).
  [[nodiscard]] virtual std::shared_ptr<communicator> shrink(const shrink_spec& as);
  /// Does the same as shrink(), but keeps all ranks and their numbers: revokes this communicator and splits all its
  /// ranks into a new one.
  [[nodiscard]] virtual std::shared_ptr<communicator> revoke_and_split();

  /// Allocates memory of this rank's device for register_region(). Communicates with no other rank. Errors:
  /// unsupported, out_of_memory.
  [[nodiscard]] virtual std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes);
  /// Registers \p region, which allocate_region() of this communicator returned, with all ranks. All ranks call it
  /// together, with one size, while nothing is in flight. Blocks. The region stays registered until abort() or
  /// destroy().
  virtual void register_region(registered_region& region);

  /// Releases device memory that only launches need, and returns its size in bytes. All ranks call it together, while
  /// nothing is in flight, and launch nothing before resume(). Blocks; abort() ends it.
  /// Errors: unsupported. After an error, here or from resume(), the communicator must be considered failed.
  virtual std::size_t suspend();
  /// Allocates that memory again, at the same addresses. All ranks call it together. Blocks; abort() ends it.
  virtual void resume();

  /// Returns what the library reports about a failure. Empty if it reports nothing.
  /// Threads: any, at any time, also while another call is stuck and after abort(). Never blocks.
  [[nodiscard]] virtual library_diagnostics last_diagnostics() const { return {}; }

  /// Returns what it has of one-shot kernels; null if none were asked for. Call it after init(). Threads: any.
  [[nodiscard]] virtual std::shared_ptr<const one_shot_status> one_shot() const { return nullptr; }
  /// Returns what it has launched so far, captured launches included; all 0 if one-shot kernels were not asked for.
  /// Threads: that of launch().
  [[nodiscard]] virtual launch_counts launched() const { return {}; }

  [[nodiscard]] rank self() const noexcept { return self_; }
  [[nodiscard]] int world_size() const noexcept { return world_size_; }
  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept { return device_; }

private:
  /// Implements launch(). The default implementation calls do_launch_together() with this operation only.
  virtual bool do_launch(const operation& what, stream_ref stream, completion_word at_end);
  /// Implements launch_together(). The default implementation throws unsupported.
  virtual bool do_launch_together(std::span<const operation* const> all, stream_ref stream, completion_word at_end);

  rank self_;
  int world_size_;
  std::shared_ptr<device> device_;
};

/// What kernels of a backend that wait for peers need, so that other kernels that wait cannot exclude them.
struct kernel_needs {
  unsigned blocks = 0;         ///< The most blocks of a kernel. Each takes up to a whole multiprocessor.
  unsigned cluster_blocks = 1; ///< How many of them need multiprocessors in the same part of the GPU.
  /// Why kernels may begin in another order than they were launched in on their device, for people. Empty: they do not.
  std::string disorder{};
};

/// A kind of communicator: mock, nccl or gloo. Threads: safe from any.
class backend {
public:
  backend() = default;
  backend(const backend&) = delete;
  backend& operator=(const backend&) = delete;
  virtual ~backend() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Returns the version and origin as text for users, e.g. "NCCL 2.28.9 from /usr/lib/libnccl.so.2".
  [[nodiscard]] virtual std::string version() const = 0;

  /// Returns the capabilities of worlds over \p devices, all of this process. In a world over several processes each
  /// process knows its own devices only. Cheap enough to call for each world. Forms no communicator and does not block.
  /// Errors: the driver's.
  [[nodiscard]] virtual troupe::capabilities examine(std::span<const std::shared_ptr<device>> devices) = 0;

  /// Returns what the kernels of its communicators need; by default nothing.
  [[nodiscard]] virtual kernel_needs needs_of_kernels() const { return {}; }

  /// Makes a new id for one formation. Call it once per formation and give the id to every rank.
  [[nodiscard]] virtual unique_id make_unique_id() = 0;

  /// Returns rank \p self's end of the communicator that \p id names, not yet formed. The caller then calls init().
  /// Errors: invalid_argument (rank outside the world).
  [[nodiscard]] virtual std::shared_ptr<communicator> create(const unique_id& id, rank self, int world_size,
                                                             std::shared_ptr<device> where) = 0;
};

} // namespace troupe
