#include <troupe/actors/transport/guarded_connection.hpp>

#include <utility>

#include <utility>

namespace troupe {

void guard_terms::report(guard_event_kind kind, std::string peer, std::string text) const noexcept {
  if (!on_event) return;
  try {
    on_event({kind, std::move(peer), std::move(text)});
  } catch (...) { // NOLINT(bugprone-empty-catch): a listener's fault must not end the guard
  }
}

void guard_terms::report_stranger(guard_event_kind kind, std::string peer, std::string text) noexcept {
  const time_point now = std::chrono::steady_clock::now();
  if (now >= window_end_) {
    const std::uint64_t before = std::exchange(left_out_, 0);
    window_end_ = later(now, limits.report_window);
    reported_ = 0;
    if (before > 0)
      report(guard_event_kind::left_out, {},
             std::to_string(before) + " more connections were refused or closed before they were admitted");
  }
  if (reported_ >= limits.reports) {
    ++left_out_;
    return;
  }
  report(kind, std::move(peer), std::move(text));
  if (++reported_ < limits.reports) return;
  report(guard_event_kind::left_out, {},
         std::to_string(reported_) + " connections were not admitted: further ones are counted and not reported for " +
             std::to_string(limits.report_window.count()) + " ms");
}

} // namespace troupe
