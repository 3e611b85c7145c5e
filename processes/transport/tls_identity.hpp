/// Holds the credentials of a control connection after they have been read and checked.
#pragma once

#include <troupe/processes/transport/openssl_owner.hpp>
#include <troupe/processes/transport/transport_options.hpp>

#include <string>
#include <vector>

namespace troupe {

/// Certificate, key and CA of one process. Move-only.
struct tls_identity {
  openssl_owner<x509_st> certificate;
  std::vector<openssl_owner<x509_st>> between; ///< Intermediate certificates.
  openssl_owner<evp_pkey_st> key;
  openssl_owner<x509_store_st> trusted; ///< Holds only the CA's certificates.
  std::vector<std::string> warnings;
};

/// Reads and checks the credentials. Errors: as check_credentials.
[[nodiscard]] tls_identity read_tls_identity(connection_side side, const transport_credentials& credentials);

/// Creates a TLS context for mutual authentication: TLS 1.2 or later, the other side's certificate required and
/// verified, no session resumption (a resumed session would skip the check of the certificate's dates), no
/// renegotiation.
///
/// Errors: internal, if OpenSSL fails.
[[nodiscard]] openssl_owner<ssl_ctx_st> make_tls_context(connection_side side, const tls_identity& identity);

} // namespace troupe
