/// The parts that all benches' JSON documents share. docs/benchmarks.md shows them by example.
#pragma once

#include <troupe/program/support/statistics.hpp>

#include <troupe/device/device.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::program {

using json = nlohmann::ordered_json;

/// Raised when a field changes its meaning or goes away; new fields do not raise it.
inline constexpr int bench_schema = 1;

/// What was measured, with what, where and when: schema, bench, troupe, caf, command, date, machine, heading.
[[nodiscard]] json begin_report(std::string_view bench, const std::vector<std::string>& heading);

/// "NVIDIA H200 0000:00:06.0" and the like, for headings.
[[nodiscard]] std::string device_line(const device& which);
[[nodiscard]] json device_report(const device& which);

/// Medians of blocks, and the blocks.
[[nodiscard]] json figures_report(const block_figures& figures);

/// Each line behind "# ".
void print_heading(std::FILE* to, const std::vector<std::string>& lines);

/// The present date and time as strftime() writes it.
[[nodiscard]] std::string local_time(const char* format);

[[nodiscard]] inline double in_microseconds(std::chrono::nanoseconds span) noexcept {
  return std::chrono::duration<double, std::micro>(span).count();
}
[[nodiscard]] std::vector<double> in_microseconds(const std::vector<std::chrono::nanoseconds>& spans);

} // namespace troupe::program
