/// A doctor's findings for people.
#pragma once

#include <troupe/program/doctor/doctor_findings.hpp>

#include <string>

namespace troupe::program {

/// Returns lines, each ended by a newline: one for each part, a table of links if there are at least two devices, and
/// last what this machine is ready for.
[[nodiscard]] std::string as_text(const doctor_findings& findings);

} // namespace troupe::program
