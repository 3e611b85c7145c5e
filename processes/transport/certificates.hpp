/// Creates a private CA and certificates signed by it, for tests and for machines that one person runs.
#pragma once

#include <troupe/processes/transport/openssl_owner.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

/// The role of a certificate. A host's certificate is not accepted for a controller, and vice versa.
enum class certificate_use : std::uint8_t { controller, host };

/// The validity period of a certificate.
struct certificate_span {
  std::chrono::system_clock::time_point from;
  std::chrono::system_clock::time_point to;
};

/// Returns the period from one hour ago, because clocks differ, until \p how_long from now.
[[nodiscard]] certificate_span valid_for(std::chrono::hours how_long);

/// A certificate and its private key, in PEM.
struct certificate_pair {
  std::string certificate;
  std::string key;
};

/// A certificate authority with a key of its own (EC P-256). Move-only. Threads: one at a time.
class certificate_authority {
public:
  /// Creates the key and the self-signed certificate. Errors: internal, if OpenSSL fails.
  certificate_authority(const std::string& name, certificate_span span);
  certificate_authority(certificate_authority&&) noexcept = default;
  certificate_authority& operator=(certificate_authority&&) noexcept = default;
  ~certificate_authority() = default;

  /// Returns its own certificate and key.
  [[nodiscard]] certificate_pair own() const;

  /// Creates a new key (EC P-256) and a certificate for it that names \p hosts: DNS names and IP addresses. \p span may
  /// lie in the past. Errors: invalid_argument (a host that is neither), internal (OpenSSL failed).
  [[nodiscard]] certificate_pair issue(certificate_use use, const std::vector<std::string>& hosts,
                                       certificate_span span) const;

private:
  openssl_owner<evp_pkey_st> key_;
  openssl_owner<x509_st> certificate_;
};

/// The arguments of `troupe certs`.
struct certificate_options {
  std::filesystem::path folder{};   ///< Output folder, created if it does not exist.
  std::vector<std::string> hosts{}; ///< Named by the certificates in addition to localhost, 127.0.0.1 and ::1.
  int days = 30;                    ///< Validity in days, 1 to 3,650.
};

/// A created file and its purpose.
struct made_file {
  std::filesystem::path file;
  std::string purpose;
};

/// Creates a CA, a certificate for controllers, one for hosts, and a join token. The files are ca.pem, ca.key,
/// controller.pem, controller.key, host.pem, host.key and join.token; only their owner can read them.
///
/// Errors: invalid_argument if one of the files exists already (then nothing is written) or \p order is invalid;
/// internal if the system or OpenSSL fails.
[[nodiscard]] std::vector<made_file> make_certificates(const certificate_options& options);

} // namespace troupe
