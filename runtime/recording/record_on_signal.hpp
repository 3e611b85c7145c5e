/// Writes the flight record when the process receives a signal, for a process that seems stuck.
#pragma once

#include <troupe/device/threads/worker.hpp>

#include <atomic>
#include <functional>
#include <string_view>

namespace troupe {

/// Returns the number of the signal called \p name: USR1 or USR2, which have no other meaning. 0 for an empty name.
/// Errors: invalid_argument, listing the valid names.
[[nodiscard]] int parse_record_signal(std::string_view name);
[[nodiscard]] std::string_view record_signal_name(int number) noexcept;

/// While this object exists, \p write is called on a thread of its own for each signal \p number, one call at a time.
/// There may be one per signal in a process: several runtimes use different signals. Errors: invalid_argument (the
/// signal has a handler already).
class record_on_signal {
public:
  record_on_signal(int number, std::function<void()> write);
  record_on_signal(const record_on_signal&) = delete;
  record_on_signal& operator=(const record_on_signal&) = delete;
  ~record_on_signal();

private:
  void run();

  const int number_;
  const std::function<void()> write_;
  std::atomic<bool> stopping_{false};
  worker thread_;
};

} // namespace troupe
