/// Reads the join token that `troupe certs` has written, as its users do.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/processes/transport/join_secret.hpp>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace troupe::tests {

/// Returns the join token in \p file: its first line. A file that others may read is refused, because the whole token
/// is secret.
/// Errors: missing if it cannot be read; invalid_argument if the token is too long or others have access.
inline std::string read_join_token(const std::filesystem::path& file) {
  struct stat found {};
  std::ifstream from{file, std::ios::binary};
  if (!from || ::stat(file.c_str(), &found) != 0 || S_ISDIR(found.st_mode))
    throw_system_error(errc::missing, "open", "the join token's file '" + file.string() + "' cannot be read");
  if ((found.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    throw exception{errc::invalid_argument,
                    "the join token's file '" + file.string() + "' can be read or written by others: chmod 600 it"};
  std::string token(join_secret::longest + 2, '\0');
  from.read(token.data(), static_cast<std::streamsize>(token.size()));
  token.resize(static_cast<std::size_t>(from.gcount()));
  if (const std::size_t end = token.find_first_of("\r\n"); end != std::string::npos) token.resize(end);
  if (token.size() > join_secret::longest)
    throw exception{errc::invalid_argument, "the join token's file '" + file.string() + "' holds more than " +
                                                std::to_string(join_secret::longest) + " characters"};
  return token;
}

} // namespace troupe::tests
