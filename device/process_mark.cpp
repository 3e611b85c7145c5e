#include <troupe/device/process_mark.hpp>

#include <pthread.h>

#include <string>

namespace troupe {

constinit std::atomic<std::uint32_t> process_mark::forks_{0};

process_mark::process_mark() noexcept {
  // Without memory for the registration, forks are not recognised.
  static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { forks_.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(registered);
  made_in_ = forks_.load(std::memory_order_relaxed);
}

error used_in_fork(const char* what) {
  return {.code = errc::unsupported,
          .text = "this process is a fork of the one that made " + std::string{what} +
                  ", whose threads and connections a fork does not have: fork before the runtime is made, or start the "
                  "process by exec (multiprocessing's \"spawn\")"};
}

} // namespace troupe
