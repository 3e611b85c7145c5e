/// One rank's communicator that moves data with Gloo, and the thread that runs its operations: Gloo's calls block, but
/// a launch must not block.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/gloo/gloo_formation.hpp>
#include <troupe/collectives/backend/mock/mock_rendezvous.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/device/mock/mock_engine.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/worker.hpp>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace troupe {

/// Runs jobs on one thread, in the order in which they were added. Each job starts once its stream has reached it.
///
/// After a job has failed, no other job runs. The failed job and those behind it stay pending until stop(), so that
/// their completion is not taken for success. Threads: safe from any.
class gloo_job_queue {
public:
  class job;

  /// \p cut: makes a stuck job throw. It is called from any thread, and more than once. \p engine is woken when a job
  /// has ended.
  gloo_job_queue(std::function<void()> cut, std::shared_ptr<mock_waker> engine);
  gloo_job_queue(const gloo_job_queue&) = delete;
  gloo_job_queue& operator=(const gloo_job_queue&) = delete;
  /// Calls stop().
  ~gloo_job_queue();

  /// Starts the thread. Errors: communicator_failed after stop(), std::system_error.
  void start();
  [[nodiscard]] std::shared_ptr<job> add(std::function<void()> work);
  /// Reports that the stream has reached \p one, for the first time or again. Returns reached if the job is done or
  /// stop() has returned.
  [[nodiscard]] progress meet(job& one);
  /// Reports that the stream will not reach \p one, or does not wait for it any more. If the job is not done, it counts
  /// as failed. Returns when no thread runs the job.
  void drop(job& one) noexcept;
  /// Adds a job and waits until it is done. Errors: those of the job; communicator_failed after stop() or after the
  /// failure of another job.
  void run(std::function<void()> work);

  /// Ends the thread: cuts the running job and starts no other one. When stop() has returned, no job's memory is
  /// touched any more. Idempotent.
  void stop() noexcept;

  /// Throws the failure, if there was one.
  void check() const;

private:
  void serve();
  [[nodiscard]] std::shared_ptr<job> next();
  void end(job& one, error failure) noexcept;
  [[nodiscard]] bool fail(error why) noexcept;

  const std::function<void()> cut_;
  const std::shared_ptr<mock_waker> engine_;
  mutable std::mutex mutex_; ///< Protects the members below.
  condition changed_;
  std::deque<std::shared_ptr<job>> jobs_;
  std::shared_ptr<job> running_;
  std::optional<error> failure_;
  bool stopping_ = false;
  bool stopped_ = false; ///< The thread has ended, or was never started.
  worker thread_;
  std::mutex joining_; ///< Locked before mutex_.
};

/// Implements communicator. Launches are tasks of the mock's streams. Their operations run on one thread of this rank,
/// in the order of the launches, also if the launches are in several streams.
/// BUF-1: when abort() has returned, no operation's memory is touched any more.
class gloo_communicator final : public communicator {
public:
  gloo_communicator(std::shared_ptr<gloo_network> network, const gloo_endpoint& endpoint, rank self, int world_size,
                    std::shared_ptr<device> where, mock_driver& driver);
  ~gloo_communicator() override;

  void init() override;
  void launch_together(std::span<const operation* const> all, stream_ref stream) override;
  void check() override;
  void abort() override;
  void destroy() override;

  [[nodiscard]] std::shared_ptr<communicator> split(const split_spec& as) override;
  void split_none() override;
  [[nodiscard]] std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes) override;
  /// Registers nothing, because sockets read and write any memory. Waits for the other ranks, as a registration of NCCL
  /// does.
  void register_region(registered_region& region) override;

private:
  enum class life : std::uint8_t { fresh, formed, ended };
  class launch_task;

  /// State that the tasks in the streams share with their communicator. Tasks may outlive the communicator.
  struct shared_state {
    shared_state(std::shared_ptr<gloo_network> network, rank me, int size, std::shared_ptr<mock_waker> engine);

    const rank self;
    const int world_size;
    gloo_formation among;
    gloo_job_queue jobs; ///< Declared after the members that its jobs use.
    mock_order order;
  };
  /// One exchange among a communicator's ranks that is not a launch: a split or a registration.
  struct side_exchange {
    std::shared_ptr<shared_state> parent;
    std::uint64_t ordinal = 0;
  };

  gloo_communicator(std::shared_ptr<shared_state> with, std::shared_ptr<device> where, mock_driver& driver);

  void require_formed() const;
  [[nodiscard]] side_exchange next_side_exchange();
  [[nodiscard]] static gloo_rendezvous arrange(const side_exchange& one, int color);
  [[nodiscard]] static std::unique_ptr<mock_task> make_task(const std::shared_ptr<shared_state>& with,
                                                            mock_launch mine);

  mock_driver& driver_; ///< Kept alive by where().
  const std::shared_ptr<shared_state> shared_;
  gloo_rendezvous rendezvous_; ///< Empty before init() of a communicator made by split().
  side_exchange split_off_{};  ///< The parent of a communicator made by split().
  int color_ = 0;
  std::atomic<life> life_{life::fresh};
  std::mutex splits_guard_; ///< Protects the members below.
  std::vector<std::weak_ptr<shared_state>> splits_;
  std::uint64_t side_exchanges_ = 0; ///< Number of splits and registrations so far; the same on all ranks.
};

} // namespace troupe
