#include <troupe/device/error.hpp>
#include <troupe/device/threads/own_thread.hpp>
#include <troupe/device/threads/worker.hpp>

#include <string>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

constinit thread_local int own_scopes = 0;

} // namespace

bool is_own_thread() noexcept {
  return own_scopes > 0;
}

own_thread_scope::own_thread_scope() noexcept {
  ++own_scopes;
}

own_thread_scope::~own_thread_scope() {
  --own_scopes;
}

worker::worker(std::function<void()> body) {
  if (thread_scheduler* const scheduler = thread_scheduler::current()) {
    scheduled_ = scheduler->start(std::move(body));
    return;
  }
  try {
    real_ = std::thread{[body = std::move(body)] {
      const own_thread_scope own;
      body();
    }};
  } catch (const std::system_error& why) {
    throw exception{errc::out_of_memory,
                    "a thread cannot be started (" + std::string{why.what()} +
                        "): raise the limit on threads (ulimit -u, the cgroup's pids.max) or on memory (ulimit -v)"};
  }
}

void worker::join() {
  if (const auto one = std::exchange(scheduled_, nullptr))
    thread_scheduler::current()->join(*one);
  else
    real_.join();
}

void worker::detach() {
  if (scheduled_)
    scheduled_ = nullptr;
  else
    real_.detach();
}

bool worker::is_current() const noexcept {
  if (!scheduled_) return real_.get_id() == std::this_thread::get_id();
  const thread_scheduler* const scheduler = thread_scheduler::current();
  return scheduler != nullptr && scheduler->is_running(*scheduled_);
}

} // namespace troupe
