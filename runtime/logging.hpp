/// Defines troupe's own log: a named spdlog logger on standard error. A thread of its own writes it, so that a reader
/// that is slow or has stopped delays nobody.
#pragma once

#include <troupe/device/time.hpp>

#include <string>
#include <string_view>

namespace troupe {

/// Creates the logger "troupe" if there is none, and sets its level. To use your own logger, register it under that
/// name first. Threads: any. Errors: out_of_memory (no thread can be started).
void open_log(const std::string& level);

// These add a line to a queue of 1 MiB. If it is full, the line is dropped; the number of dropped lines is logged when
// there is room again. They never wait for the reader. Threads: any.
/// Details: the placement of threads, reports of faults as JSON.
void log_debug(std::string_view line);
/// Changes of state.
void log_info(std::string_view line);
/// Faults, and what needs attention.
void log_warning(std::string_view line);

/// Waits until all lines so far have been written, at most \p at_most. Returns whether they have. The process's exit
/// does so, for at most one second.
bool flush_log(nanoseconds at_most); // NOLINT(modernize-use-nodiscard)

} // namespace troupe
