/// Writes the files of reports and records: replaces them atomically, and prints times for their names and contents.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace troupe {

/// The form of a printed time.
enum class utc_form : std::uint8_t {
  separated, ///< For example "2026-01-31T23:59:59.123456Z".
  compact,   ///< For example "20260131T235959.123456Z", for file names.
};

[[nodiscard]] std::string utc_of(std::chrono::system_clock::time_point at, utc_form form);

/// Writes \p text to a temporary file and renames that to \p path, so that readers never see a partial file. By
/// default, only the owner may read the file, because reports and records contain requests, addresses and file names.
/// Returns the reason of a failure in words; empty on success. Leaves no other file behind.
[[nodiscard]] std::string replace_file(const std::filesystem::path& path, std::string_view text, mode_t mode = 0600);

} // namespace troupe
