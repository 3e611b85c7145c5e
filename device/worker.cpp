#include <troupe/device/worker.hpp>

#include <utility>

namespace troupe {

worker::worker(std::function<void()> body) {
  if (fibers* const all = fibers::current())
    simulated_ = all->start(std::move(body));
  else
    real_ = std::thread{std::move(body)};
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
