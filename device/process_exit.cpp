#include <troupe/device/process_exit.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

namespace {

constinit std::atomic<bool> all_ended{false};

struct registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<ends_with_process>> registered;
  std::atomic<int> process{0}; ///< The process that made the last registration.
};

// Never destroyed, because runtimes may be created while static objects are being destroyed.
registry& the_registry() noexcept {
  // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): at a program's first use of troupe
  static auto* const instance = new registry;
  return *instance;
}

void end_all() noexcept {
  registry& all = the_registry();
  std::vector<std::weak_ptr<ends_with_process>> ending;
  if (all.process.load() == ::getpid()) { // otherwise a thread that does not exist in this process may hold the lock
    const std::lock_guard lock{all.mutex};
    ending.swap(all.registered);
  }
  for (auto one = ending.rbegin(); one != ending.rend(); ++one)
    if (const auto here = one->lock(); here && !here->is_inherited()) here->end();
  all_ended.store(true, std::memory_order_release);
}

} // namespace

ends_with_process::ends_with_process() noexcept : process_{::getpid()} {}

bool ends_with_process::is_inherited() const noexcept {
  return process_ != ::getpid();
}

void end_with_process(const std::shared_ptr<ends_with_process>& one) {
  registry& all = the_registry();
  {
    const std::lock_guard lock{all.mutex};
    std::erase_if(all.registered, [&](const auto& other) { return other.expired() || other.lock() == one; });
    all.registered.push_back(one);
    all.process.store(::getpid());
  }
  // An exit function is registered at every call. Exit functions run in reverse order of registration, and the first
  // one to run ends all objects.
  static_cast<void>(std::atexit([] { end_all(); }));
}

bool process_is_ending() noexcept {
  return all_ended.load(std::memory_order_acquire);
}

} // namespace troupe
