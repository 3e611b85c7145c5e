/// Defines the credentials with which a process authenticates itself, and what it requires of its peers.
#pragma once

#include <troupe/actors/transport/guard_limits.hpp>
#include <troupe/actors/transport/join_secret.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

/// The settings of a TLS proxy that are secret or lead to secrets. Files are in PEM format and are read once, when the
/// proxy is created; `troupe certs` creates them. In plain mode only the token is used.
struct guard_credentials {
  std::filesystem::path ca_file{}; ///< The CA's certificate. Processes with a certificate signed by it may connect.
  /// The process's own certificate, followed by any intermediate certificates.
  std::filesystem::path certificate_file{};
  std::filesystem::path key_file{}; ///< The private key of that certificate, without a passphrase.
  std::string token{};              ///< The join token: 16 to 1,024 characters, equal in all processes.
  /// A DNS name or IP address that the other side's certificate must name. Empty: any certificate that our CA signed is
  /// accepted, because a private CA signs for one purpose only and processes move between machines.
  std::string expected_peer{};
};

/// Checks everything that can be checked without the other side: files exist and have the right content, the key
/// belongs to the certificate, the CA has signed it for this \p side, nothing has expired, and the token has a valid
/// length. Returns warnings as lines for people: a key that others may read, a certificate that expires within a week.
///
/// Errors: missing for a file that cannot be read; invalid_argument for anything else. Texts name the file.
[[nodiscard]] std::vector<std::string> check_guard_credentials(guard_mode mode, guard_side side,
                                                               const guard_credentials& credentials);

/// Returns the join token in \p file: its first line. A file that others may read is refused, because the whole token
/// is secret.
///
/// Errors: missing if it cannot be read; invalid_argument if the token is too long or others have access.
[[nodiscard]] std::string read_join_token(const std::filesystem::path& file);

} // namespace troupe
