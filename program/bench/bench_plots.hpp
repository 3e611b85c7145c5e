/// What the reports of the benches look like as drawings. They are drawn from the report alone, so that one that was
/// written elsewhere can be drawn, too.
#pragma once

#include <troupe/program/bench/bench_report.hpp>
#include <troupe/program/bench/plot.hpp>

#include <optional>
#include <string>
#include <vector>

namespace troupe::program {

/// The drawing of \p report: bandwidth and time by size, ours beside raw, for the collectives; for host and registered
/// memory and for fusion by size, too; rates by how many are in flight; latencies as shares of requests. None for a
/// report that has no such axis. Errors: nlohmann's, for what is no bench's report.
[[nodiscard]] std::optional<plot> plot_of(const json& report);

/// What \p report was measured on and with, for people: versions, devices and links, settings that differ from the
/// defaults, method; the machine and the date. A paragraph each.
[[nodiscard]] std::vector<std::string> circumstances(const json& report);

/// Whether \p report's devices are only pretended.
[[nodiscard]] bool is_of_mock(const json& report);

} // namespace troupe::program
