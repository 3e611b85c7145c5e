#include <troupe/device/process_exit.hpp>
#include <troupe/runtime/logging.hpp>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>

namespace troupe {

namespace {

constexpr const char* logger_name = "troupe";

/// Returns the logger, or null if spdlog's registry, which is a static object, has been destroyed.
std::shared_ptr<spdlog::logger> present_logger() {
  return process_is_ending() ? nullptr : spdlog::get(logger_name);
}

} // namespace

void open_log(const std::string& level) {
  static std::mutex making; // several threads may create runtimes, and spdlog refuses to register a name twice
  const std::lock_guard lock{making};
  auto logger = spdlog::get(logger_name);
  if (!logger) logger = spdlog::stderr_logger_mt(logger_name);
  logger->set_level(spdlog::level::from_str(level));
}

void log_info(std::string_view line) {
  if (const auto logger = present_logger()) logger->info("{}", line);
}

void log_warning(std::string_view line) {
  if (const auto logger = present_logger()) logger->warn("{}", line);
}

} // namespace troupe
