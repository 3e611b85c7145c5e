/// Writes the flight recorder's content to a file: the latest requests of every rank of this process and their
/// outcomes. `troupe trace` reads it. (docs/operations/tracing.md lists its fields.)
#pragma once

#include <troupe/collectives/recording/flight_recorder.hpp>

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

namespace troupe {

/// Returns the name of this host, or "unknown".
[[nodiscard]] std::string host_name();

/// Identifies the process of a record, and relates the record's clock to the system clock.
struct record_stamp {
  int pid = 0;
  std::string host{};
  std::string boot{};  ///< The boot id of the machine: processes with the same one have the same steady clock.
  time_point steady{}; ///< The time of the stamp by the record's clock.
  std::chrono::system_clock::time_point system{}; ///< The same time by the system clock.
  std::string about{};                            ///< Versions and settings, on one line.

  [[nodiscard]] static record_stamp now(std::string about = {});
};

/// Returns the flight record as one JSON document in UTF-8. \p why is the reason for writing it.
[[nodiscard]] std::string as_json(const flight_recorder& recorder, const record_stamp& stamp, std::string_view why);

/// Writes the document to \p path. Readers never see a partial file. Errors: invalid_argument, naming the file and the
/// reason.
void write_flight_record(const std::filesystem::path& path, const flight_recorder& recorder, const record_stamp& stamp,
                         std::string_view why);

/// Returns "flight-host-pid4711-20260131T235959.123456Z.json" in \p folder, which is created if needed. Errors: those
/// of write_flight_record().
[[nodiscard]] std::filesystem::path flight_record_path(const std::filesystem::path& folder, const record_stamp& stamp);

} // namespace troupe
