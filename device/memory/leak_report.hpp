/// Collects reports of resources that destructors could not release. Destructors report them because they cannot throw.
#pragma once

#include <troupe/device/error.hpp>

#include <cstddef>
#include <functional>

namespace troupe {

/// Reports a resource that could not be released, unless the process is ending. Threads: any.
void report_leak(const error& why) noexcept;

/// Returns the number of reports since the process began. Tests assert that it does not grow.
[[nodiscard]] std::size_t leak_count() noexcept;

/// Sets \p handler to be called for each later report (the runtime logs them). An empty handler removes it. It is
/// called under a lock: it must neither call on_leak() nor cause a report.
void on_leak(std::function<void(const error&)> handler);

/// Calls \p release. If it throws, the error is reported with \p what as the name of the resource.
template <class Release>
void return_or_report(const char* what, Release&& release) noexcept {
  try {
    release();
  } catch (...) {
    error why = current_error();
    try {
      why.text = std::string{what} + " could not be released: " + why.text;
    } catch (...) { // no memory left for the text
    }
    report_leak(why);
  }
}

} // namespace troupe
