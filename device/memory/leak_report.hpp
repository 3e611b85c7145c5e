/// The one place where destructors report what they could not give back, since they cannot throw.
#pragma once

#include <troupe/device/error.hpp>

#include <cstddef>
#include <functional>

namespace troupe {

/// Reports a resource that could not be returned, unless the process is ending. Threads: any.
void report_leak(const error& why) noexcept;

/// Number of reports since the process began. Tests assert that it does not grow.
[[nodiscard]] std::size_t leak_count() noexcept;

/// Calls \p handler for each later report (the runtime logs them). An empty one removes it.
void on_leak(std::function<void(const error&)> handler);

/// Runs \p release; what it throws is reported under \p what.
template <class Release>
void return_or_report(const char* what, Release&& release) noexcept {
  try {
    release();
  } catch (...) {
    error why = current_error();
    try {
      why.text = std::string{what} + " could not be returned: " + why.text;
    } catch (...) { // no memory left to say more
    }
    report_leak(why);
  }
}

} // namespace troupe
