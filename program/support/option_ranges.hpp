/// Range checks of options that are sizes, times or real numbers; CLI::Range serves small whole numbers. Every numeric
/// option of the program has a range (tests/program/option_ranges_test.cpp).
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <limits>
#include <string>

namespace troupe::program {

/// The largest size that a bench accepts.
inline constexpr const char* largest_size = "1024G";

/// Accepts a size (8, 4K), from \p least to \p most inclusive.
[[nodiscard]] CLI::Validator size_in(const std::string& least, const std::string& most = largest_size);
/// Accepts a time (250ms, 30s), from \p least to \p most inclusive.
[[nodiscard]] CLI::Validator time_in(const std::string& least, const std::string& most);
/// Accepts a whole number up to the limit of its type. CLI::Range would accept a larger one and clamp it.
[[nodiscard]] CLI::Validator whole_in(std::uint64_t least, std::uint64_t most);
/// Accepts a number with or without a fraction, from \p least to \p most inclusive.
[[nodiscard]] CLI::Validator real_in(double least, double most);
/// Accepts any seed.
[[nodiscard]] inline CLI::Validator any_seed() {
  return whole_in(0, std::numeric_limits<std::uint64_t>::max());
}

} // namespace troupe::program
