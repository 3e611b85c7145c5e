/// Defines troupe's own log: a named spdlog logger on standard error.
#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// Creates the logger "troupe" if there is none, and sets its level. To use your own logger, register it under that
/// name first. Threads: any.
void open_log(const std::string& level);

void log_info(std::string_view line);
void log_warning(std::string_view line);

} // namespace troupe
