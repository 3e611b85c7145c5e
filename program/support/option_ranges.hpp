/// Adds command-line options with a range: whole numbers by CLI::Range, and sizes, times and real numbers by the
/// validators below. Every numeric option of the program has a range (tests/program/option_ranges_test.cpp). The help
/// text shows the defaults.
#pragma once

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace troupe::program {

/// The largest size that a bench accepts.
inline constexpr const char* largest_size = "1024G";

/// Accepts a whole number up to the limit of its type. CLI::Range would accept a larger one and clamp it.
[[nodiscard]] CLI::Validator whole_in(std::uint64_t least, std::uint64_t most);
/// Accepts a number with or without a fraction, from \p least to \p most inclusive.
[[nodiscard]] CLI::Validator real_in(double least, double most);
/// Accepts any seed.
[[nodiscard]] inline CLI::Validator any_seed() {
  return whole_in(0, std::numeric_limits<std::uint64_t>::max());
}

/// Adds an option that is a small whole number, from \p least to \p most inclusive.
template <class Number, class Limit>
CLI::Option* add_number(CLI::App& command, const std::string& names, Number& value, const std::string& what,
                        Limit least, Limit most) {
  return command.add_option(names, value, what)->capture_default_str()->check(CLI::Range(least, most));
}
CLI::Option* add_real(CLI::App& command, const std::string& names, double& value, const std::string& what, double least,
                      double most);
/// Adds an option that is a size (8, 4K), from \p least to largest_size inclusive. A default of 0 is not shown.
CLI::Option* add_size(CLI::App& command, const std::string& names, std::size_t& bytes, const std::string& what,
                      const std::string& least);
/// Adds an option that is a time (250ms, 30s), from \p least to \p most inclusive.
CLI::Option* add_time(CLI::App& command, const std::string& names, std::chrono::nanoseconds& span,
                      const std::string& what, const std::string& least, const std::string& most);
/// Adds an option that is a list of values, separated by commas.
template <class Value>
CLI::Option* add_list(CLI::App& command, const std::string& names, std::vector<Value>& values,
                      const std::string& what) {
  return command.add_option(names, values, what)->capture_default_str()->delimiter(',');
}

} // namespace troupe::program
