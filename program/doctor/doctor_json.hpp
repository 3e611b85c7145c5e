/// A doctor's findings for programs, as one JSON document (docs/topology.md describes its fields).
#pragma once

#include <troupe/program/doctor/doctor_findings.hpp>

#include <string>

namespace troupe::program {

/// Returns UTF-8 text, indented and ended by a newline. Unknown values are null.
[[nodiscard]] std::string as_json(const doctor_findings& findings);

} // namespace troupe::program
