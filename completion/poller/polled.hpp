/// What the poller looks at.
#pragma once

#include <troupe/completion/poller/clock.hpp>

#include <cstddef>

namespace troupe {

/// One thing that it looks at in each round.
class polled {
public:
  polled() = default;
  polled(const polled&) = delete;
  polled& operator=(const polled&) = delete;
  virtual ~polled() = default;

  /// From the poller's thread alone. Answers whatever can be answered; returns whether there was anything.
  virtual bool poll(time_point now) = 0;
  /// After a look in which something was answered: lets go of what is over, which nobody waits for.
  virtual void tidy() noexcept {}
  /// Something to look after: while this is 0 the poller may sleep until it is notified.
  [[nodiscard]] virtual std::size_t load() const noexcept = 0;
};

} // namespace troupe
