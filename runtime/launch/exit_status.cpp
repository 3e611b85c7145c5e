#include <troupe/runtime/launch/exit_status.hpp>

#include <cstring>

namespace troupe::launch {

std::string to_string(const exit_status& status) {
  if (status.lost) return "was lost: its exit status is unknown";
  if (status.signal != 0) return "was ended by signal " + describe_signal(status.signal);
  return "ended with exit status " + std::to_string(status.code);
}

std::string describe_signal(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return std::to_string(signal) + (name != nullptr ? " (SIG" + std::string{name} + ")" : "");
}

} // namespace troupe::launch
