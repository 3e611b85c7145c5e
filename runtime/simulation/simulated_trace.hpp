/// What happened in one simulated run, in its order.
#pragma once

#include <troupe/device/fibers.hpp>

#include <chrono>
#include <string>
#include <string_view>

namespace troupe::simulation {

/// A line for each thing: virtual time in nanoseconds since the run began, and what. Threads: the run's.
class trace {
public:
  explicit trace(bool kept) : kept_{kept} {}

  /// Whether anybody will read it: what costs much to say need not be said.
  [[nodiscard]] bool is_kept() const noexcept { return kept_; }
  void note(std::string_view what) {
    if (!kept_) return;
    text_ += std::to_string((steady_now() - began_).count());
    text_ += ' ';
    text_ += what;
    text_ += '\n';
  }
  [[nodiscard]] std::string& text() noexcept { return text_; }

private:
  bool kept_;
  time_point began_ = steady_now();
  std::string text_;
};

} // namespace troupe::simulation
