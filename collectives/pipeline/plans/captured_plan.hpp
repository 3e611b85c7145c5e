/// Requests and a client's kernels between them, captured once on every rank, to be replayed by one request.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/collectives/operation/world_stamp.hpp>
#include <troupe/device/driver.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/memory/buffer.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

class rank_capture;
class rank_pipeline;

/// What a client captures: called once for each rank, for all at the same time, each on its GPU's launcher thread with
/// the rank's stream in capture (rank_capture). It is called again when the world has been formed anew, so it must hold
/// whatever it uses. It must not wait for requests or for the GPU: the launcher that would serve them is the caller.
using capture_function = std::function<void(rank_capture&)>;

/// How a plan is captured.
struct plan_options {
  /// The client's own streams to capture in, one for each rank; none: troupe's. Each must be out of capture, and is so
  /// again when the capture has ended, well or not.
  std::vector<native_stream> streams{};
  nanoseconds deadline = world_default_deadline; ///< Of the capture; by default that of forming the world.
};

/// A plan. Made by world::capture(); replayed by troupe::replay.
///
/// Lifetime: it holds its function, and the buffers of its requests (BUF-1); a replay holds it until its outcome. Its
/// graphs end with it, on the launchers' threads, or before it with the communicators that they refer to: replays are
/// then refused. Threads: safe from any.
class captured_plan {
public:
  /// What one capture on all ranks came to.
  struct content {
    std::vector<operation> operations{}; ///< Of all ranks: they hold the memory that the graphs work on.
    std::vector<buffer> kept{};
  };

  /// For whoever captures it: users get plans from world::capture().
  captured_plan(capture_function what, plan_options options);
  /// Stands for another process's plan where ranks are compared; it cannot be replayed.
  explicit captured_plan(std::uint64_t number);
  captured_plan(const captured_plan&) = delete;
  captured_plan& operator=(const captured_plan&) = delete;
  ~captured_plan();

  /// No other plan of the process has it.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  /// What is called for each rank, again in each new epoch.
  [[nodiscard]] const capture_function& function() const noexcept { return function_; }
  /// As given to world::capture().
  [[nodiscard]] const plan_options& options() const noexcept { return options_; }
  /// For which world and epoch it is, or is being, captured.
  [[nodiscard]] world_stamp stamp() const;

  /// errc::none, or why it cannot be replayed in the world and epoch of \p at.
  [[nodiscard]] error objection_to_replay(const world_stamp& at) const;
  /// What a replay of it must hold until its outcome.
  [[nodiscard]] std::shared_ptr<const void> hold() const;
  /// Memory on \p where, and in the host, that a launch of it may write: results of its requests, and what it was told
  /// to keep, since that is what the client's kernels work on.
  [[nodiscard]] std::vector<buffer> written_on(device_id where) const;

  // For captures: first begin(), then succeed() or fail() ------------------------------------------------------------
  /// It is captured for \p at on \p ranks from now on, in place of what there was.
  void begin(world_stamp at, std::span<const std::shared_ptr<rank_pipeline>> ranks);
  /// It can be replayed from now on.
  void succeed(content captured);
  /// Its replays are refused with \p why.
  void fail(error why);

private:
  /// A device that memory of the plan is on, in its life at the capture.
  struct home {
    const device* where;
    device_epoch made_in;
  };
  struct held_content {
    content all;
    std::vector<home> homes;
  };

  const std::uint64_t number_;
  const capture_function function_;
  const plan_options options_;

  mutable std::mutex guard_;
  world_stamp stamp_{};
  std::vector<std::weak_ptr<rank_pipeline>> ranks_;
  std::shared_ptr<const held_content> content_;
  error failure_;
};

} // namespace troupe
