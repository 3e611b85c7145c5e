/// A doctor's findings for programs: one JSON document (docs/topology.md has its fields).
#pragma once

#include <troupe/program/doctor/doctor_findings.hpp>

#include <string>

namespace troupe::program {

/// UTF-8, indented, ended by a line's end. What is not known is null.
[[nodiscard]] std::string as_json(const doctor_findings& findings);

} // namespace troupe::program
