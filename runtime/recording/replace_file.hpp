/// Files that are there whole or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace troupe {

/// Writes \p text beside \p path and renames, so that nobody ever reads half of it. Its owner alone may
/// read it: reports and records tell of requests, addresses and file names. Returns what kept it from that, for
/// people; empty: nothing, it is there. Nothing is left behind.
[[nodiscard]] std::string replace_file(const std::filesystem::path& path, std::string_view text);

} // namespace troupe
