/// Wakes a thread that polls file descriptors.
#pragma once

#include <troupe/collectives/backend/gloo/open_file.hpp>

namespace troupe {

/// A notifier: a file descriptor (eventfd) that becomes readable on ring(). Threads: safe from any.
class gloo_bell {
public:
  /// Errors: internal (no file descriptor is left).
  gloo_bell();

  void ring() noexcept;
  /// Makes the descriptor unreadable again.
  void calm() noexcept;
  [[nodiscard]] int number() const noexcept { return file_.number(); }

private:
  open_file file_;
};

} // namespace troupe
