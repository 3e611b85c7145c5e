/// A flight trace in a page of text.
#pragma once

#include <troupe/program/trace/trace_record.hpp>

#include <cstddef>
#include <cstdio>

namespace troupe::program {

/// Times by operation, who comes last, how the GPUs' time is used, the \p slowest requests, and what is not over.
void print_trace_summary(const flight_trace& trace, std::size_t slowest, std::FILE* to);

} // namespace troupe::program
