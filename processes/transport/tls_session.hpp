/// One side of a TLS session without a socket: converts between the peer's encrypted bytes and plain bytes. Also
/// describes TLS errors to users.
#pragma once

#include <troupe/processes/transport/join_secret.hpp>
#include <troupe/processes/transport/openssl_owner.hpp>
#include <troupe/processes/transport/transport_options.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// Reads the calling thread's queue of OpenSSL errors and returns the fault. The text holds fixed words only, nothing
/// that the peer sent.
[[nodiscard]] transport_fault tls_fault(const ssl_st& session, bool in_handshake, const std::string& expected_peer);

/// Describes why a certificate was not accepted: X509_V_ERR_… as a predicate.
[[nodiscard]] std::string certificate_fault_text(long verify_code, const std::string& expected_peer);

/// The result of a step.
enum class tls_progress : std::uint8_t {
  done,    ///< The handshake is finished.
  blocked, ///< More bytes of the peer are needed.
  ended,   ///< The peer has announced that it sends no more.
  failed,  ///< The session is unusable. fault() returns the reason.
};

/// Threads: one. After each call take_output() may have bytes to send, also after a failure: TLS's alert.
class tls_session {
public:
  /// If \p expected_peer is not empty, the peer's certificate must name this DNS name or IP address. Errors:
  /// out_of_memory, invalid_argument.
  tls_session(ssl_ctx_st& context, connection_side side, std::string expected_peer);

  /// Adds bytes that the peer has sent. Errors: out_of_memory.
  void feed(std::string_view bytes);
  /// Reports that the peer's bytes have ended.
  void feed_end();

  [[nodiscard]] tls_progress handshake();
  /// Appends everything that can be decrypted. Returns blocked, ended or failed.
  [[nodiscard]] tls_progress read(std::string& into);
  /// Encrypts \p bytes after the handshake.
  void write(std::string_view bytes);
  /// Announces that nothing more will be sent.
  void finish();

  [[nodiscard]] std::string take_output();

  /// Returns a value that only the two ends of this session know. Call it after the handshake. Errors: internal.
  [[nodiscard]] join_digest binding() const;

  [[nodiscard]] const transport_fault& fault() const noexcept { return fault_; }

private:
  tls_progress judge(int returned, bool in_handshake);

  openssl_owner<ssl_st> tls_;
  std::string expected_peer_;
  transport_fault fault_;
};

} // namespace troupe
