/// Parses and prints time spans in the form that people write: 30s, 250ms, 20us. A number without a unit is refused,
/// because it could mean seconds or milliseconds.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace troupe {

/// Parses a whole number followed by ns, us, ms, s or min. Errors: invalid_argument, describing the expected form.
[[nodiscard]] std::chrono::nanoseconds parse_duration(std::string_view text);

/// Prints \p span in the largest unit up to seconds that divides it. parse_duration() reads the result back if \p span
/// is not negative.
[[nodiscard]] std::string format_duration(std::chrono::nanoseconds span);

} // namespace troupe
