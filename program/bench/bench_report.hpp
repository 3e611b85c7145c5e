/// The parts that the JSON documents of all benches share. docs/benchmarks.md shows them by example.
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

/// The schema version. It is raised when a field changes its meaning or is removed; new fields do not raise it.
inline constexpr int bench_schema = 1;

/// Begins a report with the circumstances: schema, bench, troupe, caf, command, date, machine, heading.
[[nodiscard]] json begin_report(std::string_view bench, const std::vector<std::string>& heading);

/// Returns a line about the device for headings, e.g. "NVIDIA H200 0000:00:06.0".
[[nodiscard]] std::string device_line(const device& which);
[[nodiscard]] json device_report(const device& which);
/// Returns whether \p report was measured on the mock's devices.
[[nodiscard]] bool is_of_mock(const json& report);

/// Returns the medians over blocks, and the figures of the blocks.
[[nodiscard]] json figures_report(const block_figures& figures);

/// Prints each line after "# ".
void print_heading(std::FILE* to, const std::vector<std::string>& lines);

/// Returns the present local date and time, formatted as by strftime().
[[nodiscard]] std::string local_time(const char* format);

[[nodiscard]] inline double in_microseconds(std::chrono::nanoseconds span) noexcept {
  return std::chrono::duration<double, std::micro>(span).count();
}
[[nodiscard]] std::vector<double> in_microseconds(const std::vector<std::chrono::nanoseconds>& spans);

} // namespace troupe::program
