#include <troupe/device/error.hpp>
#include <troupe/device/threads/worker.hpp>

#include <string>
#include <system_error>
#include <utility>

namespace troupe {

worker::worker(std::function<void()> body) {
  if (fibers* const all = fibers::current()) {
    simulated_ = all->start(std::move(body));
    return;
  }
  try {
    real_ = std::thread{std::move(body)};
  } catch (const std::system_error& why) {
    throw exception{errc::out_of_memory,
                    "a thread cannot be started (" + std::string{why.what()} +
                        "): raise the limit on threads (ulimit -u, the cgroup's pids.max) or on memory (ulimit -v)"};
  }
}

void worker::join() {
  if (const auto one = std::exchange(simulated_, nullptr))
    fibers::current()->wait_for_end(*one);
  else
    real_.join();
}

void worker::detach() {
  if (simulated_)
    simulated_ = nullptr;
  else
    real_.detach();
}

bool worker::is_current() const noexcept {
  return simulated_ ? fibers::current() != nullptr && fibers::current()->is_running(simulated_.get())
                    : real_.get_id() == std::this_thread::get_id();
}

} // namespace troupe
