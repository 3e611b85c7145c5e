/// Where metrics are read: what is left of a runtime when it has ended is nothing.
#pragma once

#include <troupe/runtime/metrics/runtime_reading.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace troupe {

/// Threads: any.
class metrics_source {
public:
  explicit metrics_source(std::function<runtime_reading()> look) : look_{std::move(look)} {}

  /// None once it has been closed.
  [[nodiscard]] std::optional<runtime_reading> read() const {
    const std::lock_guard lock{guard_};
    return look_ ? std::optional{look_()} : std::nullopt;
  }
  /// Waits for a look that is under way: after it, none begins.
  void close() {
    const std::lock_guard lock{guard_};
    look_ = nullptr;
  }

private:
  mutable std::mutex guard_;
  std::function<runtime_reading()> look_;
};

} // namespace troupe
