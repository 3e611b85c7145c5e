/// Spans of time as people write them: 30s, 250ms, 20us. A bare number is refused, for seconds and milliseconds are
/// equally likely to be meant.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace troupe {

/// A whole number followed by ns, us, ms, s or min. Errors: invalid_argument, saying what to write.
[[nodiscard]] std::chrono::nanoseconds parse_duration(std::string_view text);

/// \p span as parse_duration() reads it back where it is not negative, in the largest unit up to seconds that divides
/// it.
[[nodiscard]] std::string format_duration(std::chrono::nanoseconds span);

} // namespace troupe
