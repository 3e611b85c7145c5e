#include <troupe/runtime/logging.hpp>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

constexpr const char* logger_name = "troupe";

} // namespace

void open_log(const std::string& level) {
  auto logger = spdlog::get(logger_name);
  if (!logger) logger = spdlog::stderr_logger_mt(logger_name);
  logger->set_level(spdlog::level::from_str(level));
}

void log_info(std::string_view line) {
  if (const auto logger = spdlog::get(logger_name)) logger->info("{}", line);
}

void log_warning(std::string_view line) {
  if (const auto logger = spdlog::get(logger_name)) logger->warn("{}", line);
}

} // namespace troupe
