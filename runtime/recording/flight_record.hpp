/// The flight recorder's contents as a file: what every rank of this process was asked for lately, and what became of
/// it. `troupe trace` reads it. (docs/operations/tracing.md has its fields.)
#pragma once

#include <troupe/collectives/recording/flight_recorder.hpp>

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

namespace troupe {

/// Whose record it is, and what its times can be compared with.
struct record_stamp {
  int pid = 0;
  std::string host{};
  std::string boot{};  ///< Of the machine's life: processes with the same have the same steady clock.
  time_point steady{}; ///< One moment by the clock of the record…
  std::chrono::system_clock::time_point system{}; ///< …and by the one that hosts share, more or less.
  std::string about{};                            ///< Versions and settings, on one line.

  [[nodiscard]] static record_stamp now(std::string about = {});
};

/// UTF-8, one JSON document. \p why it was written.
[[nodiscard]] std::string as_json(const flight_recorder& recorder, const record_stamp& stamp, std::string_view why);

/// Writes it to \p path; nobody ever reads half of it. Errors: invalid_argument, naming the file and the reason.
void write_flight_record(const std::filesystem::path& path, const flight_recorder& recorder, const record_stamp& stamp,
                         std::string_view why);

/// "flight-host-pid4711-20260131T235959.123456Z.json" in \p folder, which is made if it is not there.
/// Errors: as write_flight_record's.
[[nodiscard]] std::filesystem::path flight_record_path(const std::filesystem::path& folder, const record_stamp& stamp);

} // namespace troupe
