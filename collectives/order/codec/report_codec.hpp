/// Encodes errors, absence reports, resume points and commits as bytes.
#pragma once

#include <troupe/collectives/operation/wire.hpp>
#include <troupe/collectives/progress/absence_report.hpp>
#include <troupe/collectives/progress/resume_points.hpp>
#include <troupe/collectives/progress/told_commits.hpp>
#include <troupe/device/error.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>

namespace troupe {

inline constexpr std::size_t longest_wire_text_bytes = 4096; ///< A longer text is truncated.
/// Size limit of an encoded report. A longer one is omitted. The error's text names the first missing ranks.
inline constexpr std::size_t longest_wire_report_bytes = std::size_t{256} << 10U;

/// Writes all members except ticket, epoch and undefined, which the requesting process knows, and the report, which
/// many errors may share.
void write_error(wire_writer& out, const error& why);
/// Reads an error. The code is never errc::none while \p in is ok.
[[nodiscard]] error read_error(wire_reader& in);

/// Lists an error among the fields of a record: see wire_writer::field().
inline void error_field(wire_writer& out, const error& why) {
  write_error(out, why);
}
inline void error_field(wire_reader& in, error& why) {
  why = read_error(in);
}
/// Lists an error that may be none.
template <class Wire, class Error>
void failure_field(Wire& wire, Error& why) {
  bool is_set = static_cast<bool>(why);
  wire.field(is_set);
  if (is_set)
    error_field(wire, why);
  else if constexpr (!std::is_const_v<Error>)
    why = {};
}
/// Lists what a rank did last, if anything. The text is truncated if it is too long.
void mark_field(wire_writer& out, const std::optional<operation_mark>& one);
void mark_field(wire_reader& in, std::optional<operation_mark>& one);

/// Writes a report. If it is too long, writes nothing and returns false.
[[nodiscard]] bool write_report(wire_writer& out, const absence_report& report);
/// Reads a report for a world of at most \p world_size ranks. Returns null if \p in has failed. A lane that this
/// process does not know and cannot add is reported as the default lane.
[[nodiscard]] std::shared_ptr<absence_report> read_report(wire_reader& in, int world_size);

/// Lists resume points, which may be null. A lane that this process does not know and cannot add is left out.
void points_field(wire_writer& out, const std::shared_ptr<const resume_points>& all, int world_size);
void points_field(wire_reader& in, std::shared_ptr<const resume_points>& all, int world_size);
/// Lists the fields of an agreed value.
void agreed_field(wire_writer& out, const agreed_value& one);
void agreed_field(wire_reader& in, agreed_value& one);
/// Lists commits, in the same way as resume points.
void commits_field(wire_writer& out, const told_commits& all);
void commits_field(wire_reader& in, told_commits& all);

} // namespace troupe
