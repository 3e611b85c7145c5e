/// Wakes a thread that polls.
#pragma once

#include <troupe/collectives/backend/gloo/open_file.hpp>

namespace troupe {

/// A descriptor that becomes readable when it is rung. Threads: any.
class gloo_bell {
public:
  /// Errors: internal (no descriptor is left).
  gloo_bell();

  void ring() noexcept;
  /// Unreadable again.
  void calm() noexcept;
  [[nodiscard]] int number() const noexcept { return file_.number(); }

private:
  open_file file_;
};

} // namespace troupe
