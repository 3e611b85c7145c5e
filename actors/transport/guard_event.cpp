#include <troupe/actors/transport/guard_event.hpp>

namespace troupe {

std::string_view to_string(guard_event_kind kind) noexcept {
  switch (kind) {
    case guard_event_kind::admitted: return "admitted";
    case guard_event_kind::ended: return "ended";
    case guard_event_kind::broken: return "broken";
    case guard_event_kind::bad_certificate: return "bad_certificate";
    case guard_event_kind::bad_protocol: return "bad_protocol";
    case guard_event_kind::bad_token: return "bad_token";
    case guard_event_kind::bad_frame: return "bad_frame";
    case guard_event_kind::too_slow: return "too_slow";
    case guard_event_kind::too_many: return "too_many";
    case guard_event_kind::unreachable: return "unreachable";
    case guard_event_kind::left_out: return "left_out";
    case guard_event_kind::warning: return "warning";
  }
  return "unknown";
}

} // namespace troupe
