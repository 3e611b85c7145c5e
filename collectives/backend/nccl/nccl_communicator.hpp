/// One rank's NCCL communicator. Makes abort() safe while other threads are inside NCCL.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/nccl/nccl_api.hpp>
#include <troupe/collectives/backend/nccl/nccl_enqueue.hpp>
#include <troupe/collectives/backend/nccl/nccl_library.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/stream.hpp>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

/// One i32 in a device's memory, always zero, for the barriers of all communicators of that device. It is shared
/// because allocating and freeing memory may wait for the device, and a new world is formed while operations of the old
/// one may hang there (BUF-1). Threads: safe from any.
class nccl_barrier_memory {
public:
  explicit nccl_barrier_memory(const std::shared_ptr<device>& where);
  nccl_barrier_memory(const nccl_barrier_memory&) = delete;
  nccl_barrier_memory& operator=(const nccl_barrier_memory&) = delete;
  ~nccl_barrier_memory();

  [[nodiscard]] void* address() const noexcept { return word_.data(); }
  /// Delays freeing the memory until after \p last_use, in stream order. No thread waits.
  void outlast(const event& last_use);

private:
  std::mutex mutex_;
  stream side_; ///< Used only for the initial fill and for the waits for last uses.
  buffer word_;
};

/// The word of each device, made on first use and kept. Threads: safe from any.
class nccl_barrier_memories {
public:
  /// Returns the word of \p where. The first call for a device waits for the device.
  [[nodiscard]] std::shared_ptr<nccl_barrier_memory> of(const std::shared_ptr<device>& where);

private:
  std::mutex mutex_;
  std::map<std::shared_ptr<device>, std::shared_ptr<nccl_barrier_memory>> all_;
};

/// Tracks one communicator's use of the barrier word. It may be destroyed while a barrier, hung or not, still uses
/// the word.
class nccl_barrier_word {
public:
  nccl_barrier_word(std::shared_ptr<nccl_barrier_memory> memory, const std::shared_ptr<device>& where)
    : memory_{std::move(memory)}, last_use_{where} {}
  nccl_barrier_word(const nccl_barrier_word&) = delete;
  nccl_barrier_word& operator=(const nccl_barrier_word&) = delete;
  ~nccl_barrier_word();

  [[nodiscard]] void* address() const noexcept { return memory_->address(); }
  /// Records the use by a barrier that was just launched in \p stream. All barriers of the communicator use the same
  /// stream.
  void used_in(stream_ref stream) { last_use_.record(stream); }

private:
  std::shared_ptr<nccl_barrier_memory> memory_;
  event last_use_;
};

/// A blocking communicator (`blocking = 1`): a launch costs 5.5 µs, against 70 µs and more for a non-blocking one.
///
/// NCCL's behaviour, according to its sources (2.28.9 and 2.30, src/init.cc, src/group.cc), and the consequences:
/// - Inside a group, ncclCommInitRankConfig() returns the handle at once, and the end of the group connects the ranks.
///   Therefore init() can publish the handle before it blocks, and abort() always knows it.
/// - ncclCommAbort() sets the abort flag, which every wait inside NCCL polls, on the host and on the device. On a
///   blocking communicator it does *not* wait for a thread that is inside NCCL with the same handle. It then frees the
///   communicator or, with several ranks in the process, all of them on the last rank's abort. Therefore abort() first
///   refuses new calls and gives running calls a moment to leave; only a stuck call remains. A stuck call sees the flag
///   within microseconds, while freeing begins with stopping threads. The remaining race is in NCCL and cannot be
///   closed through its interface.
/// - ncclCommSplit() returns the new handle only when all is done. Until then, aborting the parent is the way to end
///   it.
/// - ncclCommShrink() with NCCL_SHRINK_ABORT sets the parent's abort flag, waits for its kernels, clears the flag and
///   then connects the ranks. ncclCommRevoke() ends the kernels too, and a split may follow. Both must be called by the
///   thread that aborts. Therefore the parent first refuses all further calls and waits for running ones; if one does
///   not return, the derivation fails. An abort between setting and clearing the flag would be lost. This race is in
///   NCCL, too.
/// - While ranks still connect (bootstrap), an abort sets the flag and frees nothing: NCCL leaks the unfinished
///   communicator. The restart budget bounds this leak.
class nccl_communicator final : public communicator, public std::enable_shared_from_this<nccl_communicator> {
public:
  nccl_communicator(std::shared_ptr<const nccl_library> library, std::shared_ptr<nccl_barrier_memories> words,
                    const unique_id& id, rank self, int world_size, std::shared_ptr<device> where,
                    const nccl_native_config& config = {}) noexcept;
  /// Describes how init() derives the communicator from a parent.
  struct derivation {
    enum class method : std::uint8_t { split, shrink, revoke };
    std::shared_ptr<nccl_communicator> parent{};
    method how{};
    int color = 0;              ///< The color of a split.
    std::vector<int> without{}; ///< For a shrink: the ranks of the parent that are left out.
  };
  nccl_communicator(derivation from, rank self, int world_size) noexcept;
  /// If neither abort() nor destroy() was called, reports a leak and leaks NCCL's resources instead of blocking.
  ~nccl_communicator() override;

  [[nodiscard]] std::string_view capture_objection() const noexcept override {
    if (config_.graphUsageMode != 0) return {};
    return "captured plans are off in this world, because nccl.config has graphUsageMode=0: set it to 2";
  }
  void init() override;
  void warm_up(stream_ref stream) override;
  void check() override;
  /// A second call returns at once, without waiting for the first. Also ends a destroy() that is stuck.
  void abort() override;
  /// After a failed init(), aborts instead, as NCCL requires.
  void destroy() override;
  [[nodiscard]] std::shared_ptr<communicator> split(const split_spec& as) override;
  void split_none() override;
  [[nodiscard]] std::shared_ptr<communicator> shrink(const shrink_spec& as) override;
  [[nodiscard]] std::shared_ptr<communicator> revoke_and_split() override;
  [[nodiscard]] std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes) override;
  void register_region(registered_region& region) override;
  /// Supported since NCCL 2.29.7. Synchronizes with the other ranks over NCCL's own connections; abort() ends these
  /// waits.
  std::size_t suspend() override;
  void resume() override;
  [[nodiscard]] library_diagnostics last_diagnostics() const override;

private:
  /// spent: another communicator was derived from this one, and this one can only be aborted.
  enum class phase : std::uint8_t { fresh, forming, ready, spent, unusable, closing, ended };
  class visit;

  bool do_launch(const operation& what, stream_ref stream, completion_word at_end) override;
  bool do_launch_together(std::span<const operation* const> all, stream_ref stream, completion_word at_end) override;
  void form();
  void form_from_parent();
  [[nodiscard]] ncclResult_t form_from(const derivation& from, ncclComm_t& formed);
  void require_ready() const;
  void end_forming(ncclResult_t result, const char* call);
  [[nodiscard]] nccl_target target(ncclComm_t handle, stream_ref stream) const noexcept;
  void end_launch(const nccl_enqueued& enqueued) const;
  [[nodiscard]] ncclResult_t wait_out(ncclResult_t result) const;
  [[nodiscard]] error aborted(const char* during) const;

  std::shared_ptr<const nccl_library> library_;
  const nccl_functions& nccl_;
  std::shared_ptr<nccl_barrier_memories> words_;
  ncclUniqueId id_{};
  nccl_native_config config_;
  derivation from_;                                 ///< Holds the parent until init() has ended.
  std::unique_ptr<nccl_barrier_word> barrier_word_; ///< Made by init(), used after it.

  mutable std::mutex mutex_; ///< Protects the members below.
  std::condition_variable left_;
  phase phase_ = phase::fresh;
  ncclComm_t handle_ = nullptr;
  std::vector<void*> windows_;
  int inside_ = 0; ///< Number of threads inside NCCL with the handle.
};

} // namespace troupe
