/// Prints times for people and file names.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace troupe {

/// The form of a printed time.
enum class utc_form : std::uint8_t {
  separated, ///< "2026-01-31T23:59:59.123456Z"
  compact,   ///< "20260131T235959.123456Z", for file names
};

[[nodiscard]] std::string utc_of(std::chrono::system_clock::time_point at, utc_form form);

} // namespace troupe
