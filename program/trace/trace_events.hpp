/// A flight trace for viewers: Chrome's trace event format, which Perfetto opens.
#pragma once

#include <troupe/program/trace/trace_record.hpp>

#include <nlohmann/json_fwd.hpp>

namespace troupe::program {

/// A process for each rank with three rows: the lives of its requests, its launcher's calls, its GPU; arrows join the
/// parts of a collective on the GPUs. Times in microseconds from the first request on.
[[nodiscard]] nlohmann::ordered_json trace_events(const flight_trace& trace);

} // namespace troupe::program
