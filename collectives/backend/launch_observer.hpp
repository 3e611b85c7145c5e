/// Observes launches: which requests each launch contains, and from which clients. A communicator sees only operations.
#pragma once

#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/identity.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace troupe {

/// Position of a request in the order of its client.
struct request_origin {
  troupe::lane lane{};
  std::uint64_t position = 0; ///< Index among the rank's requests in the lane, from 0.
  std::uint64_t client = 0;   ///< Number of the requesting actor or other client; 0: unspecified.
  bool of_world = false;      ///< Part of a request to all ranks, which belongs to no lane.
};

/// One request of a launch.
struct launched_request {
  ticket name;
  request_origin from;
  const operation* what = nullptr; ///< Not null; owned by the request.
};

/// The launch that a rank's launcher is about to make.
struct launch_notice {
  rank self;       ///< The rank in epoch `formed_in`.
  epoch formed_in; ///< The epoch of its world or sub-world.
  device_id where; ///< The launcher's device. Launches on one device are made one after the other.
  /// The requests that one call launches. Empty while a plan is captured, because its operations are not requests.
  std::span<const launched_request> all;
};

/// Called before and after each launch, also for copies, plan replays and staged requests, which do not reach the
/// communicator as single operations. Without an observer, a launch costs one check of a pointer.
class launch_observer {
public:
  launch_observer() = default;
  launch_observer(const launch_observer&) = delete;
  launch_observer& operator=(const launch_observer&) = delete;
  virtual ~launch_observer() = default;

  /// Called before any of its work is enqueued. Lifetime: \p next is valid during the call. Threads: the launchers, one
  /// for each device, concurrently.
  virtual void about_to_launch(const launch_notice& next) noexcept = 0;
  /// Called when the launch call that about_to_launch() announced has returned or failed. Threads: as above.
  virtual void launch_ended() noexcept {}
};

/// Forwards to two observers, because a launcher has only one.
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
