#include <troupe/actors/guard/guarded_connection.hpp>

#include <utility>

namespace troupe {

void guard_terms::report(guard_event_kind kind, std::string peer, std::string text) const noexcept {
  if (!on_event) return;
  try {
    on_event({kind, std::move(peer), std::move(text)});
  } catch (...) { // NOLINT(bugprone-empty-catch): a listener's fault must not end the guard
  }
}

} // namespace troupe
