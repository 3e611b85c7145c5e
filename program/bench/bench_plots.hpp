/// Turns bench reports into plots. A plot is made from the report alone, so a report from another machine can be
/// plotted too.
#pragma once

#include <troupe/program/bench/bench_report.hpp>
#include <troupe/program/bench/plot.hpp>

#include <optional>
#include <string>
#include <vector>

namespace troupe::program {

/// Returns the plot of \p report. For collectives it has bandwidth and time by size, with troupe beside raw; host
/// memory, registered memory and fusion are plotted by size too, rates by requests in flight, and latencies by share of
/// requests. Returns nothing for a report that has no axis to plot. Errors: nlohmann's, for a document that is not a
/// bench report.
[[nodiscard]] std::optional<plot> plot_of(const json& report);

/// Describes how \p report was measured, for people, in one paragraph each: versions, devices and links, settings that
/// differ from the defaults, method, machine and date.
[[nodiscard]] std::vector<std::string> circumstances(const json& report);

/// Returns whether \p report was measured on the mock's devices.
[[nodiscard]] bool is_of_mock(const json& report);

} // namespace troupe::program
