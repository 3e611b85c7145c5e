/// Collects the trace of one simulated run: its events, in order.
#pragma once

#include <troupe/testing/simulation/fibers.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace troupe::simulation {

/// A text with one line per event: the virtual time in nanoseconds since the run began, and a description. Threads:
/// only that of the run.
class trace {
public:
  explicit trace(bool kept) : kept_{kept} {}

  /// Returns whether the trace is kept. Otherwise, expensive descriptions can be skipped.
  [[nodiscard]] bool is_kept() const noexcept { return kept_; }
  void note(std::string_view what) {
    if (!kept_) return;
    text_ += std::to_string((virtual_now() - began_).count());
    text_ += ' ';
    add(what);
    text_ += '\n';
  }
  [[nodiscard]] std::string& text() noexcept { return text_; }

private:
  /// Plan numbers are unique in the process. Here they are replaced by the order in which plans are first named.
  void add(std::string_view what) {
    constexpr std::string_view plan = "plan ";
    for (std::size_t at = what.find(plan); at != std::string_view::npos; at = what.find(plan)) {
      text_ += what.substr(0, at + plan.size());
      what.remove_prefix(at + plan.size());
      const std::size_t digits = std::min(what.find_first_not_of("0123456789"), what.size());
      if (digits == 0) continue;
      const auto known = plans_.try_emplace(std::string{what.substr(0, digits)}, plans_.size() + 1).first;
      text_ += std::to_string(known->second);
      what.remove_prefix(digits);
    }
    text_ += what;
  }

  bool kept_;
  std::map<std::string, std::size_t> plans_;
  time_point began_ = virtual_now();
  std::string text_;
};

} // namespace troupe::simulation
