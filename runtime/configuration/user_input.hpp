/// Parses what users write: whole numbers, sizes, durations and addresses; and finds the known name that is nearest to
/// a mistyped one. CLI11's parsers are not used, because they read 010 as 8 (docs/design/0066-settings.md).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// Returns the decimal number in \p text, or nothing if it is empty, has characters other than digits, or does not fit
/// in 64 bits.
[[nodiscard]] std::optional<std::uint64_t> parse_whole_number(std::string_view text) noexcept;

/// Parses a size (8, 32K, 1G) in bytes. K, M and G are powers of 1024. Errors: invalid_argument.
[[nodiscard]] std::size_t parse_byte_size(std::string_view text);
/// Formats \p bytes in the largest unit that divides it. parse_byte_size() reads the result back.
[[nodiscard]] std::string format_byte_size(std::size_t bytes);

/// Parses a whole number followed by ns, us, ms, s or min. A number without a unit is refused, because it could mean
/// seconds or milliseconds. Errors: invalid_argument, describing the expected form.
[[nodiscard]] std::chrono::nanoseconds parse_duration(std::string_view text);
/// Formats \p span in the largest unit up to seconds that divides it. parse_duration() reads the result back if \p span
/// is not negative.
[[nodiscard]] std::string format_duration(std::chrono::nanoseconds span);

/// The parts of HOST:PORT. An IPv6 address has brackets there, and none in host.
struct control_address {
  std::string host;
  std::uint16_t port = 0;
  [[nodiscard]] bool is_loopback() const;
};
/// Parses HOST:PORT. Errors: invalid_argument, describing the expected form.
[[nodiscard]] control_address parse_control_address(std::string_view text);
[[nodiscard]] std::string to_string(const control_address& where);

/// Returns the number of letters to insert, delete, change or swap with a neighbour that turns \p from into \p to.
[[nodiscard]] std::size_t edit_distance(std::string_view from, std::string_view to);
/// Returns the first of \p known that contains \p name, else the one with the smallest edit distance. \p known is not
/// empty.
[[nodiscard]] const std::string& nearest_name(std::string_view name, std::span<const std::string> known);

} // namespace troupe
