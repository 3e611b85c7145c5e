/// Formats the doctor's findings: as text for users, and as one JSON document for programs (docs/topology.md describes
/// its fields).
#pragma once

#include <troupe/program/doctor/doctor_findings.hpp>

#include <string>

namespace troupe::program {

/// Returns a JSON document in UTF-8, indented and ended by a newline. Unknown values are null.
[[nodiscard]] std::string as_json(const doctor_findings& findings);

/// Returns lines of text, each ended by a newline: one for each part, a table of links if there are at least two
/// devices, and at the end whether this machine is ready for GPUs.
[[nodiscard]] std::string as_text(const doctor_findings& findings);

} // namespace troupe::program
