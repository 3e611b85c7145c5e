/// Reads the metrics of a runtime, and nothing once the runtime has ended.
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

  /// Returns the current reading, or nothing once closed.
  [[nodiscard]] std::optional<runtime_reading> read() const {
    const std::lock_guard lock{guard_};
    return look_ ? std::optional{look_()} : std::nullopt;
  }
  /// Closes the source. Waits for a read in progress; no read begins afterwards.
  void close() {
    const std::lock_guard lock{guard_};
    look_ = nullptr;
  }

private:
  mutable std::mutex guard_;
  std::function<runtime_reading()> look_;
};

} // namespace troupe
