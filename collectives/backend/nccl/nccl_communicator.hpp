/// One rank's end of an NCCL communicator: NCCL's rules for threads, made safe.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/nccl/nccl_barrier_word.hpp>
#include <troupe/collectives/backend/nccl/nccl_config.hpp>
#include <troupe/collectives/backend/nccl/nccl_enqueue.hpp>
#include <troupe/collectives/backend/nccl/nccl_functions.hpp>
#include <troupe/collectives/backend/nccl/nccl_library.hpp>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace troupe {

/// A blocking communicator (`blocking = 1`: a launch costs 5.5 µs, against 70 µs and more without).
///
/// What NCCL does, read in its sources (2.28.9 and 2.30, src/init.cc, src/group.cc), and what follows:
/// - Inside a group, ncclCommInitRankConfig() returns the handle at once and the group's end does the meeting.
///   So init() has a handle to publish before it blocks, and abort() needs no window in which it must guess.
/// - ncclCommAbort() sets the abort flag, which every wait inside NCCL polls, on the host and on the device. On a
///   blocking communicator it does *not* wait for a thread that is inside NCCL with the same handle. It then frees
///   the communicator, or, with several ranks in the process, all of them on the last rank's abort. So abort() first
///   shuts the door for new calls and gives those inside a moment to leave: only a call that is really stuck is still
///   there. Such a call sees the flag within microseconds, while the freeing begins with stopping threads; the
///   remaining window is NCCL's and has no remedy in its interface.
/// - ncclCommSplit() gives the new handle only when all is done; until then the parent's abort is what ends it.
/// - ncclCommShrink() with NCCL_SHRINK_ABORT sets the parent's abort flag, waits for its kernels, takes the flag back
/// and
///   meets the others; ncclCommRevoke() ends the kernels too, and a split may follow. Both belong to the thread that
///   aborts: so the parent's door is shut for good first, and a thread that does not leave makes it unfit. An abort in
///   the moments between setting the flag and taking it back would be forgotten; that has no remedy either.
/// - While ranks still meet (bootstrap), an abort sets the flag and frees nothing: NCCL leaks the unborn
///   communicator. Bounded by the restart budget.
class nccl_communicator final : public communicator, public std::enable_shared_from_this<nccl_communicator> {
public:
  nccl_communicator(std::shared_ptr<const nccl_library> library, std::shared_ptr<nccl_barrier_memories> words,
                    const unique_id& id, rank self, int world_size, std::shared_ptr<device> where,
                    const nccl_native_config& config = {}) noexcept;
  /// What init() makes it of, and how.
  struct descent {
    enum class way : std::uint8_t { split, shrink, revoke };
    std::shared_ptr<nccl_communicator> parent{};
    way how{};
    int color = 0;              ///< Of a split.
    std::vector<int> without{}; ///< Of a shrink: the parent's ranks that are left out.
  };
  nccl_communicator(descent from, rank self, int world_size) noexcept;
  /// Neither aborted nor destroyed: reports and leaks NCCL's part, rather than block.
  ~nccl_communicator() override;

  void init() override;
  void launch(const operation& what, stream_ref stream) override;
  void launch_together(std::span<const operation* const> all, stream_ref stream) override;
  void check() override;
  /// A second call returns at once, without waiting for the first. Also ends a destroy() that is stuck.
  void abort() override;
  /// After an init() that failed it aborts, as NCCL demands.
  void destroy() override;
  [[nodiscard]] std::shared_ptr<communicator> split(const split_seat& as) override;
  void split_none() override;
  [[nodiscard]] std::shared_ptr<communicator> shrink(const shrink_seat& as) override;
  [[nodiscard]] std::shared_ptr<communicator> revoke_and_split() override;
  [[nodiscard]] std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes) override;
  void register_region(registered_region& region) override;
  /// Where the library has it: NCCL 2.29.7. Meets the others by NCCL's own connections, whose waits see an abort.
  std::size_t suspend() override;
  void resume() override;
  [[nodiscard]] library_words last_words() const override;

private:
  /// spent: another has been made of it, and it is only to be aborted.
  enum class phase : std::uint8_t { fresh, forming, ready, spent, unusable, closing, ended };
  class visit;

  void form();
  void form_from_parent();
  [[nodiscard]] ncclResult_t form_from(const descent& from, ncclComm_t& formed);
  void require_ready() const;
  void end_forming(ncclResult_t result, const char* call);
  [[nodiscard]] nccl_target target(ncclComm_t handle, stream_ref stream) const noexcept;
  void end_launch(const nccl_enqueued& outcome) const;
  [[nodiscard]] ncclResult_t wait_out(ncclResult_t result) const;
  [[nodiscard]] error aborted(const char* during) const;

  std::shared_ptr<const nccl_library> library_;
  const nccl_functions& nccl_;
  std::shared_ptr<nccl_barrier_memories> words_;
  ncclUniqueId id_{};
  nccl_native_config config_;
  descent from_;                                    ///< With its parent until init() has ended.
  std::unique_ptr<nccl_barrier_word> barrier_word_; ///< Made by init(); read after it.

  mutable std::mutex guard_; ///< Of all below.
  std::condition_variable left_;
  phase phase_ = phase::fresh;
  ncclComm_t handle_ = nullptr;
  std::vector<void*> windows_;
  int inside_ = 0; ///< Threads that are inside NCCL with the handle.
};

} // namespace troupe
