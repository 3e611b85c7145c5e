/// Interface of objects that the poller polls.
#pragma once

#include <troupe/completion/poller/clock.hpp>

#include <cstddef>

namespace troupe {

/// An object that the poller polls in each round.
class polled {
public:
  polled() = default;
  polled(const polled&) = delete;
  polled& operator=(const polled&) = delete;
  virtual ~polled() = default;

  /// Answers everything that can be answered. Returns whether there was anything. Called only on the poller's thread.
  virtual bool poll(time_point now) = 0;
  /// Called after a round in which something was answered. Releases finished objects, for which no thread waits.
  virtual void tidy() noexcept {}
  /// Returns the number of things to watch. While it is 0 the poller may sleep until it is notified.
  [[nodiscard]] virtual std::size_t load() const noexcept = 0;
};

} // namespace troupe
