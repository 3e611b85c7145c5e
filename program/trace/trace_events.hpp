/// A flight trace for viewers: Chrome's trace event format, which Perfetto opens.
#pragma once

#include <troupe/program/trace/trace_record.hpp>

#include <nlohmann/json_fwd.hpp>

namespace troupe::program {

/// Returns a document with one process per rank, which has three rows: the lifetimes of its requests, its launcher's
/// calls, and its GPU. Arrows join the parts of a collective on the GPUs. Times are in microseconds from the first
/// request on.
[[nodiscard]] nlohmann::ordered_json trace_events(const flight_trace& trace);

} // namespace troupe::program
