#pragma once

#include <troupe/runtime/configuration/gathered_settings.hpp>

#include <string_view>

namespace troupe::program {

/// Raises one fault in a world under traffic and prints what came of it, by the millisecond. Returns the exit status.
/// Errors: invalid_argument (a kind that there is not).
[[nodiscard]] int run_fault_demo(std::string_view kind, const gathered_settings& asked);

} // namespace troupe::program
