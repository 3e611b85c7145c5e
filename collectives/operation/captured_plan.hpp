/// Defines plans: requests, and a client's kernels between them, captured once per rank and replayed by one request.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/device/driver.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/stream.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class rank_capture;

/// The function that a client captures. It is called once for each rank, for all ranks at the same time, each on its
/// GPU's launcher thread with the rank's stream in capture (rank_capture). It is called again whenever the world is
/// formed again, so it must own what it uses. It must not wait for requests or for the GPU, because it runs on the
/// launcher that would serve them.
using capture_function = std::function<void(rank_capture&)>;

/// A sequence of requests to all ranks: steps[k][r] is the part of rank r in the k-th request. In a world over
/// processes each process gives its own rank's part alone, as steps[k][0].
using plan_steps = std::vector<std::vector<operation>>;

/// Names of plans that their clients have not named begin with this, and continue with a number.
inline constexpr std::string_view unnamed_plan = "#";
inline constexpr std::size_t longest_plan_name_bytes = 64;

/// Options of a capture.
struct plan_options {
  /// The client's own streams to capture in, one for each rank of this process; empty: troupe's streams. They must not
  /// be in capture. When the capture has ended, with or without success, their capture has ended too.
  std::vector<native_stream> streams{};
  nanoseconds deadline = world_default_deadline; ///< Longest time for the capture; by default as for forming a world.
  /// In a world over processes: the plan's name, of at most 64 bytes, not beginning with '#'. The processes' captures
  /// with the same name are one plan. Empty: the n-th unnamed capture of each process is one plan. A process that joins
  /// later captures its plans under the same names. Not used if all ranks live in one process.
  std::string name{};
};

/// A captured plan: made by world::capture(), replayed by troupe::replay.
///
/// Lifetime: it holds its function and the buffers of its requests (BUF-1). A replay holds it until its outcome. Its
/// graphs are destroyed with it, on the launchers' threads, or earlier with the communicators that they refer to;
/// replays are then refused. Threads: safe from any.
class captured_plan {
public:
  /// The result of one capture on all ranks.
  struct content {
    std::vector<operation> operations{}; ///< The operations of all ranks. They hold the memory that the graphs use.
    std::vector<buffer> kept{};
  };

  /// Used by the code that captures plans. Users get plans from world::capture().
  captured_plan(capture_function what, plan_options options);
  /// A placeholder for the plan of another process, for comparing ranks. It cannot be replayed.
  explicit captured_plan(std::uint64_t number);
  /// A placeholder for the plan with this name in each rank's process, in a request to all ranks of a world over
  /// processes.
  explicit captured_plan(std::string name);
  captured_plan(const captured_plan&) = delete;
  captured_plan& operator=(const captured_plan&) = delete;
  ~captured_plan();

  /// Returns the plan's number, unique in the process.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  /// Returns a number that is the same at all ranks, by which their replays are compared. If all ranks live in this
  /// process, it is number(); else it is derived from the plan's name.
  [[nodiscard]] std::uint64_t common_number() const noexcept { return common_number_.load(std::memory_order_relaxed); }
  /// Returns the function that is called for each rank, again in each new epoch.
  [[nodiscard]] const capture_function& function() const noexcept { return function_; }
  /// Returns the options given to world::capture().
  [[nodiscard]] const plan_options& options() const noexcept { return options_; }
  /// Returns the world and epoch for which the plan was or is being captured.
  [[nodiscard]] world_stamp stamp() const;

  /// Returns errc::none, or the reason why it cannot be replayed in the world and epoch of \p at.
  [[nodiscard]] error objection_to_replay(const world_stamp& at) const;
  /// Returns the resources that a replay of the plan must hold until its outcome.
  [[nodiscard]] std::shared_ptr<const void> hold() const;
  /// Returns the memory on \p where and on the host that a replay may write: results of its requests, and memory passed
  /// to keep(), which the client's kernels use.
  [[nodiscard]] std::vector<buffer> written_on(device_id where) const;

  // For captures: first begin(), then succeed() or fail() ------------------------------------------------------------
  /// Sets common_number() for the present epoch: it stands for the \p attempt-th capture of options().name.
  void is_known_by_name(std::uint64_t attempt) noexcept;
  /// Begins a capture for \p at, which replaces the previous content. \p drop_graphs destroys the graphs of a number();
  /// the plan calls it when it is destroyed. It must not throw.
  void begin(world_stamp at, std::function<void(std::uint64_t)> drop_graphs);
  /// Ends the capture: the plan can be replayed from now on.
  void succeed(content captured);
  /// Ends the capture: replays are refused with \p why.
  void fail(error why);

private:
  /// A device on which the plan has memory, with its device epoch at the capture.
  struct used_device {
    const device* where = nullptr;
    device_epoch made_in;
  };
  struct held_content {
    content all;
    std::vector<used_device> devices;
  };

  const std::uint64_t number_;
  std::atomic<std::uint64_t> common_number_{number_};
  const capture_function function_;
  const plan_options options_;

  mutable std::mutex mutex_;
  world_stamp stamp_{};
  std::function<void(std::uint64_t)> drop_graphs_; ///< Empty before the first capture.
  std::shared_ptr<const held_content> content_;
  error failure_;
};

/// One rank's part in a capture. The client's kernels go into stream(), with the device current and the stream in
/// capture. Requests are added among them by launch(). The captured work runs in the order of the calls. Other streams
/// join by events, as in any capture.
///
/// Lifetime: the call of the capture function. Threads: only the one that calls it.
class rank_capture {
public:
  rank_capture(const rank_capture&) = delete;
  rank_capture& operator=(const rank_capture&) = delete;

  /// Returns the rank that is captured.
  [[nodiscard]] virtual rank self() const noexcept = 0;
  /// Returns the number of ranks of the world in the epoch of this capture.
  [[nodiscard]] virtual int world_size() const noexcept = 0;
  /// Returns the rank's device, which is current on the calling thread.
  [[nodiscard]] virtual const std::shared_ptr<device>& where() const noexcept = 0;
  /// Returns the stream in capture: troupe's, or the client's own from plan_options.
  [[nodiscard]] virtual stream_ref stream() const noexcept = 0;

  /// Captures a request. It must not use host memory (except copies of pinned memory), wait for an event, or be a
  /// replay. Blocks until the peers have made the matching call, so that a mismatch is found before anything is
  /// enqueued. Errors: those of a request, at once; deadline_exceeded; the error that failed the capture on another
  /// rank; invalid_argument (it cannot be captured).
  virtual void launch(operation what) = 0;
  /// Captures several requests in one launch. All ranks must pass the same ones (troupe::group has the rules). Parts
  /// may be groups. Errors: as launch(); invalid_argument (a part writes memory that another part uses; a copy; a
  /// barrier).
  virtual void launch_together(std::vector<operation> parts) = 0;

  /// Makes the plan hold memory that the client's own kernels use. Replays are refused once that memory is stale.
  virtual void keep(buffer memory) = 0;

  /// For capture_of(): captures one launch of as many of \p steps, from the front, as every rank offers. All but a
  /// single step must be collectives that may share a launch. Returns their number. Errors: as launch().
  virtual std::size_t launch_front(std::span<const operation> steps) = 0;

protected:
  rank_capture() = default;
  ~rank_capture() = default;
};

/// The plans of one world in this process, by name. Threads: all functions may be called from any thread.
class plan_directory {
public:
  /// Adds a plan whose capture begins. Its name stands for it from now on.
  void add(const std::shared_ptr<captured_plan>& plan);
  /// Removes the plans of the same name that were added before \p plan, because its capture has succeeded.
  void replace_by(const std::shared_ptr<captured_plan>& plan);
  /// Removes \p plan, whose capture has failed or which has been dropped, even if a replay in flight still holds it.
  /// After a failed capture the name stands for the plan before it.
  void remove(const std::shared_ptr<captured_plan>& plan);
  /// Returns the latest plan called \p name; null if there is none (any more).
  [[nodiscard]] std::shared_ptr<captured_plan> find(const std::string& name) const;

private:
  mutable std::mutex mutex_;
  /// By name, in the order of add(): the captured plan, then those whose captures are in progress.
  std::map<std::string, std::vector<std::weak_ptr<captured_plan>>, std::less<>> plans_;
};

} // namespace troupe
