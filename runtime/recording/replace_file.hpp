/// Replaces files atomically.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace troupe {

/// Writes \p text beside \p path and renames it, so that readers never see a partial file. Only its owner may read it,
/// because reports and records contain requests, addresses and file names. Returns the reason of a failure, for people;
/// empty on success. Leaves no other file behind.
[[nodiscard]] std::string replace_file(const std::filesystem::path& path, std::string_view text);

} // namespace troupe
