/// The unique id lets whoever has it join a world, so it appears nowhere (SEC-1).

#include "support/runtimes.hpp"

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/runtime/logging.hpp>

#include <catch2/catch_test_macros.hpp>

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <sstream>
#include <string>

namespace troupe::tests {

namespace {

std::string as_text(const unique_id& id) {
  std::string text;
  for (const std::byte one : id.bytes) text += static_cast<char>(one);
  return text;
}

std::string as_hex(const unique_id& id) {
  std::string text;
  for (const std::byte one : id.bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(one));
    text += digits;
  }
  return text;
}

} // namespace

TEST_CASE("the unique id of a world appears neither in the log nor in its events (SEC-1)", "[runtime]") {
  std::ostringstream log;
  spdlog::drop("troupe");
  spdlog::register_logger(
      std::make_shared<spdlog::logger>("troupe", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  std::string said;
  unique_id id;
  {
    auto settings = mock_settings(1);
    settings.log_level = "trace";
    settings.deadlines.form = 50ms;
    settings.position = process_position{.rank = 0, .world_size = 2, .local_rank = 0};
    runtime rt{settings};
    id = rt.make_unique_id();
    try {
      static_cast<void>(rt.form_world({.id = id})); // fails, so that errors are looked at as well
    } catch (const exception& failure) {
      said = failure.what();
    }
    said += rt.describe();
  }
  CHECK(flush_log(20s));
  spdlog::drop("troupe");
  said += log.str();
  REQUIRE(said.find("forming") != std::string::npos);
  // Any eight bytes of it would be too many.
  for (const std::string& secret : {as_text(id), as_hex(id)})
    for (std::size_t at = 0; at + 8 <= secret.size(); at += 8) {
      const std::string part = secret.substr(at, 8);
      if (part.find_first_not_of(part.front()) != std::string::npos) CHECK(said.find(part) == std::string::npos);
    }
}

} // namespace troupe::tests
