/// Checks of options that are written as sizes, times or real numbers; CLI::Range is for whole ones. Every number among
/// the program's options has a range (tests/program/option_ranges_test.cpp).
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <limits>
#include <string>

namespace troupe::program {

/// Any size that a bench may be given.
inline constexpr const char* largest_size = "1024G";

/// A size as 8 or 4K, from \p least to \p most, themselves included.
[[nodiscard]] CLI::Validator size_in(const std::string& least, const std::string& most = largest_size);
/// A time as 250ms or 30s, from \p least to \p most.
[[nodiscard]] CLI::Validator time_in(const std::string& least, const std::string& most);
/// A whole number that may be as large as its type has it: CLI::Range takes what is larger for the largest.
[[nodiscard]] CLI::Validator whole_in(std::uint64_t least, std::uint64_t most);
/// A number with or without a fraction, from \p least to \p most.
[[nodiscard]] CLI::Validator real_in(double least, double most);
/// Any seed.
[[nodiscard]] inline CLI::Validator any_seed() {
  return whole_in(0, std::numeric_limits<std::uint64_t>::max());
}

} // namespace troupe::program
