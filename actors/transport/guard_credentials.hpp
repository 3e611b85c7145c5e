/// What a process shows to be let in, and what it demands of others.
#pragma once

#include <troupe/actors/transport/guard_limits.hpp>
#include <troupe/actors/transport/join_secret.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

/// The settings of a guard that are secret or lead to secrets. Files are PEM and are read once, when a guard is made;
/// `troupe certs` makes them. In plain mode only the token is used.
struct guard_credentials {
  std::filesystem::path ca_file{};          ///< The CA's certificate: whoever it has signed may come in.
  std::filesystem::path certificate_file{}; ///< Our own, then any between it and the CA's.
  std::filesystem::path key_file{};         ///< Our own certificate's private key, without a passphrase.
  std::string token{};                      ///< The join token: 16 to 1,024 characters, the same in all processes.
  /// A DNS name or IP address that the other side's certificate has to name. Empty: any that our CA signed, since a
  /// private CA signs for one purpose only and processes move from machine to machine.
  std::string expected_peer{};
};

/// Checks what can be checked without the other side: files exist and are what they should be, the key belongs to the
/// certificate, the CA has signed it for this \p side, nothing has expired, and the token has a sensible length.
/// Returns warnings, as lines for people: a key that others may read, a certificate that expires within a week.
///
/// Errors: missing for a file that cannot be read; invalid_argument for anything else. Texts name the file.
[[nodiscard]] std::vector<std::string> check_guard_credentials(guard_mode mode, guard_side side,
                                                               const guard_credentials& credentials);

/// The join token that a file holds: its first line. A file that others may read is refused: a token is a secret whole.
///
/// Errors: missing where it cannot be read, invalid_argument where it is longer than a token or open to others.
[[nodiscard]] std::string read_join_token(const std::filesystem::path& file);

} // namespace troupe
