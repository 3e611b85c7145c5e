/// A TLS client that misbehaves: without a certificate, with an old protocol version, or closing in the middle.
#pragma once

#include "support/transport/loopback_client.hpp"

#include <troupe/processes/transport/openssl_owner.hpp>
#include <troupe/processes/transport/tls_session.hpp>
#include <troupe/processes/transport/transport_options.hpp>

#include <openssl/ssl.h>

#include <stdexcept>

namespace troupe::tests {

/// The differences between a tls_client and a dialer.
struct tls_client_options {
  const transport_credentials* shows = nullptr; ///< The certificate that the client presents; null for none.
  int highest_version = TLS1_3_VERSION;
};

/// A TLS client with a blocking socket, which does not verify the server.
class tls_client {
public:
  tls_client(std::uint16_t port, tls_client_options options)
    : socket_{port}, context_{SSL_CTX_new(TLS_client_method())} {
    SSL_CTX_set_security_level(context_.get(), 0); // TLS 1.1 needs this
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context_.get(), options.highest_version);
    if (options.shows != nullptr) {
      SSL_CTX_use_certificate_file(context_.get(), options.shows->certificate_file.c_str(), SSL_FILETYPE_PEM);
      SSL_CTX_use_PrivateKey_file(context_.get(), options.shows->key_file.c_str(), SSL_FILETYPE_PEM);
    }
    tls_.reset(SSL_new(context_.get()));
    SSL_set_fd(tls_.get(), socket_.descriptor());
  }

  /// Runs the handshake. Returns false if the server refused it immediately; with TLS 1.3 it may refuse later.
  bool connect() { return SSL_connect(tls_.get()) == 1; }

  std::string receive(std::size_t most) {
    std::string got(most, '\0');
    std::size_t count = 0;
    while (count < most) {
      const int came = SSL_read(tls_.get(), got.data() + count, static_cast<int>(most - count));
      if (came <= 0) break;
      count += static_cast<std::size_t>(came);
    }
    got.resize(count);
    return got;
  }

  /// Returns the fault that a dialer would report after a failed call.
  [[nodiscard]] transport_fault fault() const { return tls_fault(*tls_, false, {}); }

  bool send(const std::string& what) {
    return SSL_write(tls_.get(), what.data(), static_cast<int>(what.size())) == static_cast<int>(what.size());
  }

private:
  loopback_client socket_;
  openssl_owner<ssl_ctx_st> context_;
  openssl_owner<ssl_st> tls_;
};

} // namespace troupe::tests
