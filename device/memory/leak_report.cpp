#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/process_exit.hpp>

#include <atomic>
#include <mutex>
#include <utility>

namespace troupe {

namespace {

struct sink {
  std::atomic<std::size_t> count{0};
  std::mutex mutex;
  std::function<void(const error&)> handler;
};

// Never destroyed, because static destructors of a program may still report.
sink& the_sink() noexcept {
  // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without memory for this nothing could be reported any more
  static auto* const instance = new sink;
  return *instance;
}

} // namespace

void report_leak(const error& why) noexcept {
  if (process_is_ending()) return; // the operating system reclaims the resource
  sink& target = the_sink();
  target.count.fetch_add(1, std::memory_order_relaxed);
  try {
    const std::lock_guard lock{target.mutex};
    if (target.handler) target.handler(why);
  } catch (...) { // a failing handler must not end a destructor
  }
}

std::size_t leak_count() noexcept {
  return the_sink().count.load(std::memory_order_relaxed);
}

void on_leak(std::function<void(const error&)> handler) {
  const std::lock_guard lock{the_sink().mutex};
  the_sink().handler.swap(handler); // the earlier one is destroyed without the lock: its end may be a leak
}

} // namespace troupe
