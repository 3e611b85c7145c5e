/// One process of `troupe bench processes`: it runs verified all_reduces without pause while faults happen.
#pragma once

#include <troupe/program/commands.hpp>

#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/identity.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::program {

/// The environment variable with the path of the report file, to which processes append one line per observation.
inline constexpr const char* traffic_report_variable = "TROUPE_BENCH_REPORT";

/// A line of the report file. Times are of the monotonic clock, which all processes of a host share.
struct traffic_line {
  enum class kind : std::uint8_t {
    good,     ///< The first all_reduce of an epoch has been verified.
    answered, ///< A request was answered with a fault, after `span`.
    wrong,    ///< A result is wrong.
    hung,     ///< A request was not answered within its deadline plus two seconds.
    ended,    ///< The process has ended its work: `count` all_reduces were verified.
  };
  kind what = kind::good;
  std::string process{};
  troupe::epoch epoch{};
  int rank = 0;
  int world_size = 0;
  std::int64_t at_ns = 0;
  std::int64_t span_ns = 0;
  std::uint64_t count = 0;
};
[[nodiscard]] std::string to_line(const traffic_line& line);
/// Returns nothing for a line that is not of this format.
[[nodiscard]] std::optional<traffic_line> parse_traffic_line(std::string_view text);

/// Adds the hidden subcommand that runs one such process.
void add_process_member(CLI::App& bench, action& chosen);

} // namespace troupe::program
