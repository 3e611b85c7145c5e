/// Writes the flight record when the process is sent a signal: for one that seems stuck, from outside.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

namespace troupe {

/// The number of the signal called \p name: USR1 or USR2, which nobody else means anything by. 0 for an empty name.
/// Errors: invalid_argument, naming the choices.
[[nodiscard]] int parse_record_signal(std::string_view name);
[[nodiscard]] std::string_view record_signal_name(int number) noexcept;

/// While one lives, \p write is called on a thread of its own at each signal \p number, one at a time. One in a
/// process: several runtimes take different signals. Errors: invalid_argument (the signal has a handler already).
class record_on_signal {
public:
  record_on_signal(int number, std::function<void()> write);
  record_on_signal(const record_on_signal&) = delete;
  record_on_signal& operator=(const record_on_signal&) = delete;
  ~record_on_signal();

private:
  class waiter;
  std::unique_ptr<waiter> waiter_;
};

} // namespace troupe
