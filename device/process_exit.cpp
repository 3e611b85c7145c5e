#include <troupe/device/process_exit.hpp>
#include <troupe/device/threads/own_thread.hpp>

#include <dlfcn.h>
#include <stdlib.h> // NOLINT(modernize-deprecated-headers): on_exit()
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <mutex>
#include <thread>
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

/// Flushes stdio, unless a thread that is blocked in a write holds a stream for longer than a second.
void flush_files() noexcept {
  try {
    std::promise<void> done;
    auto flushed = done.get_future();
    std::thread{[done = std::move(done)]() mutable {
      std::fflush(nullptr);
      done.set_value();
    }}.detach();
    static_cast<void>(flushed.wait_for(std::chrono::seconds{1}));
  } catch (...) { // no thread or no memory: the files stay unflushed
  }
}

void end_all(int status) noexcept {
  registry& all = the_registry();
  std::vector<std::weak_ptr<ends_with_process>> ending;
  if (all.process.load() == ::getpid()) { // otherwise a thread that does not exist in this process may hold the lock
    const std::lock_guard lock{all.mutex};
    ending.swap(all.registered);
  }
  const bool is_leaving = is_own_thread() && !ending.empty();
  for (auto one = ending.rbegin(); one != ending.rend(); ++one)
    if (const auto here = one->lock(); here && !here->is_inherited()) is_leaving ? here->leave(status) : here->end();
  all_ended.store(true, std::memory_order_release);
  if (!is_leaving) return;
  flush_files();
  std::_Exit(status);
}

/// Keeps the shared object that contains this code from being unloaded: on_exit() does not know what it belongs to.
void stay_loaded() noexcept {
  Dl_info here;
  if (::dladdr(reinterpret_cast<void*>(&end_all), &here) != 0) // NOLINT: a function's address
    static_cast<void>(::dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE));
}

} // namespace

void end_with_process(const std::shared_ptr<ends_with_process>& one) {
  registry& all = the_registry();
  {
    const std::lock_guard lock{all.mutex};
    // Does not lock() any of them: the last handle could end here, under the mutex.
    std::erase_if(all.registered, [&](const auto& other) {
      return other.expired() || (!other.owner_before(one) && !one.owner_before(other));
    });
    all.registered.push_back(one);
    if (all.process.exchange(::getpid()) == 0) stay_loaded();
  }
  // An exit function is registered at every call. Exit functions run in reverse order of registration, and the first
  // one to run ends all objects.
  static_cast<void>(::on_exit([](int status, void*) { end_all(status); }, nullptr));
}

bool process_is_ending() noexcept {
  return all_ended.load(std::memory_order_acquire);
}

} // namespace troupe
