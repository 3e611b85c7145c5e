/// Moments as people and file names have them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace troupe {

/// How a time is written.
enum class utc_form : std::uint8_t {
  separated, ///< "2026-01-31T23:59:59.123456Z"
  compact,   ///< "20260131T235959.123456Z", for file names
};

[[nodiscard]] std::string utc_of(std::chrono::system_clock::time_point at, utc_form form);

} // namespace troupe
