/// A CA of one's own and certificates of it, for tests and for machines that one person runs.
#pragma once

#include <troupe/actors/transport/openssl_owner.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

/// Whose certificate it is. A host's is not accepted for a controller, nor the other way round.
enum class certificate_use : std::uint8_t { controller, host };

/// From when to when a certificate is valid.
struct certificate_span {
  std::chrono::system_clock::time_point from;
  std::chrono::system_clock::time_point to;
};

/// From now on for \p how_long, and an hour back: clocks differ.
[[nodiscard]] certificate_span valid_for(std::chrono::hours how_long);

/// A certificate and its private key, in PEM.
struct certificate_pair {
  std::string certificate;
  std::string key;
};

/// A certificate authority with a key of its own (EC P-256). Movable only. Threads: one at a time.
class certificate_authority {
public:
  /// Errors: internal, where OpenSSL fails.
  certificate_authority(const std::string& name, certificate_span span);
  certificate_authority(certificate_authority&&) noexcept = default;
  certificate_authority& operator=(certificate_authority&&) noexcept = default;
  ~certificate_authority() = default;

  /// Its own certificate and key.
  [[nodiscard]] certificate_pair own() const;

  /// A new key (EC P-256) and a certificate for it, that names \p hosts: DNS names and IP addresses. \p span may lie in
  /// the past. Errors: invalid_argument for a host that is neither, internal.
  [[nodiscard]] certificate_pair issue(certificate_use use, const std::vector<std::string>& hosts,
                                       certificate_span span) const;

private:
  openssl_owner<evp_pkey_st> key_;
  openssl_owner<x509_st> certificate_;
};

/// What `troupe certs` is asked for.
struct certificate_order {
  std::filesystem::path folder{};   ///< Made where it is not there.
  std::vector<std::string> hosts{}; ///< Named by the certificates beside localhost, 127.0.0.1 and ::1.
  int days = 30;                    ///< 1 to 3,650.
};

/// One file that was made, and what it is for.
struct made_file {
  std::filesystem::path file;
  std::string purpose;
};

/// Makes a CA, a certificate for controllers, one for hosts, and a join token: ca.pem, ca.key, controller.pem,
/// controller.key, host.pem, host.key, join.token, each readable by its owner alone.
///
/// Errors: invalid_argument where one of the files is there already (nothing is written then) or the order cannot be
/// met; internal, where the system or OpenSSL fails.
[[nodiscard]] std::vector<made_file> make_certificates(const certificate_order& order);

} // namespace troupe
