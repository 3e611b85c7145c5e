/// A doctor's findings for people, and for programs as one JSON document (docs/topology.md describes its fields).
#pragma once

#include <troupe/program/doctor/doctor_findings.hpp>

#include <string>

namespace troupe::program {

/// Returns UTF-8 text, indented and ended by a newline. Unknown values are null.
[[nodiscard]] std::string as_json(const doctor_findings& findings);

/// Returns lines, each ended by a newline: one for each part, a table of links if there are at least two devices, and
/// last what this machine is ready for.
[[nodiscard]] std::string as_text(const doctor_findings& findings);

} // namespace troupe::program
