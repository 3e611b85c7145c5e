/// The settings of the control transport that are secret or lead to secrets.
#pragma once

#include <filesystem>
#include <string>

namespace troupe {

/// Names the files of a process's certificate and holds its join token. Files are in PEM format and are read once, when
/// the listener or dialer is created; `troupe certs` creates them. In plain mode only the token is used.
struct transport_credentials {
  std::filesystem::path ca_file{}; ///< The CA's certificate. Processes with a certificate signed by it may connect.
  /// The process's own certificate, followed by any intermediate certificates.
  std::filesystem::path certificate_file{};
  std::filesystem::path key_file{}; ///< The private key of that certificate, without a passphrase.
  std::string token{};              ///< The join token: 16 to 1,024 characters, equal in all processes.
  /// A DNS name or IP address that the other side's certificate must name. Empty: any certificate that our CA signed is
  /// accepted, because a private CA signs for one purpose only and processes move between machines.
  std::string expected_peer{};
};

/// Returns the controller's credentials among the files that `troupe certs` has created in \p folder.
[[nodiscard]] inline transport_credentials controller_credentials(const std::filesystem::path& folder) {
  return {.ca_file = folder / "ca.pem",
          .certificate_file = folder / "controller.pem",
          .key_file = folder / "controller.key"};
}

} // namespace troupe
