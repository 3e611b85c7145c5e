/// How the ranks of a capture agree on what they launch.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstddef>
#include <span>

namespace troupe {

/// Lets no rank of a capture enqueue a launch before its peers have asked for the same, and ends the capture on all
/// ranks if they disagree. Its capture_session watches the deadline and the faults of the world, and calls expire() or
/// fail(). Threads: safe from any; each rank's calls of offer() and end() come from one.
class capture_agreement {
public:
  capture_agreement() = default;
  capture_agreement(const capture_agreement&) = delete;
  capture_agreement& operator=(const capture_agreement&) = delete;
  virtual ~capture_agreement() = default;

  /// Offers \p all as the next launch of \p self. Blocks until its peers have offered the same. Returns the number of
  /// operations to launch: all; or, if they are \p divisible collectives, as many from the front as every rank has
  /// offered. Throws failure().
  virtual std::size_t offer(rank self, std::span<const operation* const> all, bool divisible) = 0;
  /// Reports that \p self has made all its launches. Blocks until all ranks have. Throws failure().
  virtual void end(rank self) = 0;
  /// Ends the capture on all ranks. Only the first reason is kept.
  virtual void fail(error why) = 0;
  /// Fails the capture because its deadline has passed. Has no effect once all ranks may have ended: a capture succeeds
  /// at all ranks or at none, and only the end of the epoch may come between.
  virtual void expire() = 0;
  /// Returns the reason of the failure; errc::none if the capture has not failed.
  [[nodiscard]] virtual error failure() const = 0;
};

} // namespace troupe
