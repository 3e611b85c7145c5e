/// Who is told beforehand what each launch is for: which requests are in it, and whose. A communicator sees operations
/// alone.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/pipeline/pipeline_progress.hpp>
#include <troupe/device/identity.hpp>

#include <memory>
#include <span>
#include <utility>

namespace troupe {

/// One request of a launch.
struct launched_request {
  ticket name;
  request_origin from;
  const operation* what = nullptr; ///< Not null; of the request.
};

/// What a rank's launcher is about to launch.
struct launch_notice {
  rank self;       ///< In that epoch of its world.
  epoch formed_in; ///< Of its world, or sub-world.
  device_id where; ///< Whose launcher it is: on one device there is one launch after the other.
  /// Several: launched by one call. None: a plan is captured, and what it holds is no request.
  std::span<const launched_request> all;
};

/// Copies, replays and what is staged are told of as well, though a communicator is asked for none of the first two and
/// for several operations of the last. Without an observer a launch costs one look at a pointer.
class launch_observer {
public:
  launch_observer() = default;
  launch_observer(const launch_observer&) = delete;
  launch_observer& operator=(const launch_observer&) = delete;
  virtual ~launch_observer() = default;

  /// Before anything of it is enqueued. Lifetime: \p next is valid during the call. Threads: the launchers', several at
  /// a time, one for each device.
  virtual void about_to_launch(const launch_notice& next) noexcept = 0;
  /// The call that it was told of has returned, or failed. Threads: as above.
  virtual void launch_ended() noexcept {}
};

/// Tells both: a launcher has room for one.
class launch_observers final : public launch_observer {
public:
  launch_observers(std::shared_ptr<launch_observer> first, std::shared_ptr<launch_observer> second) noexcept
    : first_{std::move(first)}, second_{std::move(second)} {}
  void about_to_launch(const launch_notice& next) noexcept override {
    first_->about_to_launch(next);
    second_->about_to_launch(next);
  }
  void launch_ended() noexcept override {
    second_->launch_ended();
    first_->launch_ended();
  }

private:
  std::shared_ptr<launch_observer> first_, second_; ///< Not null.
};

} // namespace troupe
