#include <troupe/processes/transport/transport_options.hpp>

#include <troupe/device/error.hpp>

#include <utility>

namespace troupe {

void transport_reports::report(transport_event_kind kind, std::string peer, std::string text) const noexcept {
  if (!sink_) return;
  try {
    sink_({kind, std::move(peer), std::move(text)});
  } catch (...) { // NOLINT(bugprone-empty-catch): a listener's fault must not end the transport
  }
}

void transport_reports::report_stranger(transport_event_kind kind, std::string peer, std::string text,
                                        time_point now) noexcept {
  if (now >= window_end_) {
    const std::uint64_t before = std::exchange(left_out_, 0);
    window_end_ = later(now, limits_.report_window);
    reported_ = 0;
    if (before > 0)
      report(transport_event_kind::left_out, {},
             std::to_string(before) + " more connections were refused or closed before they were admitted");
  }
  if (reported_ >= limits_.reports) {
    ++left_out_;
    return;
  }
  report(kind, std::move(peer), std::move(text));
  if (++reported_ < limits_.reports) return;
  report(transport_event_kind::left_out, {},
         std::to_string(reported_) + " connections were not admitted: further ones are counted and not reported for " +
             std::to_string(limits_.report_window.count()) + " ms");
}

void require_valid(const transport_limits& limits) {
  const auto positive = [](const char* name, auto value) {
    if (value <= decltype(value){})
      throw exception{errc::invalid_argument,
                      std::string{"the limit "} + name + " of the control transport must be positive"};
  };
  positive("admission", limits.admission);
  positive("connect", limits.connect);
  positive("stall", limits.stall);
  positive("frame_bytes", limits.frame_bytes);
  positive("queue_bytes", limits.queue_bytes);
  positive("connections", limits.connections);
  positive("pending", limits.pending);
  positive("reports", limits.reports);
  positive("report_window", limits.report_window);
}

} // namespace troupe
