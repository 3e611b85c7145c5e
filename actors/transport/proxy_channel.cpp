#include <troupe/actors/transport/proxy_channel.hpp>

#include <troupe/device/error.hpp>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace troupe {

namespace {

/// Returns OpenSSL's fixed text for an error code.
std::string reason_words(unsigned long code) {
  const char* words = ERR_reason_error_string(code);
  return words == nullptr ? "no reason given" : words;
}

/// Returns the fault that the other side's alert reports about us.
proxy_fault alert_fault(int reason) {
  switch (reason) {
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
      return {proxy_event_kind::bad_certificate, "refused our certificate: it is not signed by the CA that it trusts"};
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
      return {proxy_event_kind::bad_certificate, "refused our certificate: it has expired"};
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return {proxy_event_kind::bad_certificate, "requires a certificate, and we presented none"};
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
      return {proxy_event_kind::bad_certificate, "refused our certificate; its own log says why"};
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
      return {proxy_event_kind::bad_protocol, "supports no version of TLS that we support (1.2 or later)"};
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
      return {proxy_event_kind::bad_protocol, "refused the TLS handshake; its own log says why"};
    default: return {};
  }
}

proxy_fault own_fault(const ssl_st& session, int reason, const std::string& expected_peer) {
  switch (reason) {
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
      return {proxy_event_kind::bad_certificate,
              certificate_fault_text(SSL_get_verify_result(&session), expected_peer)};
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return {proxy_event_kind::bad_certificate, "presented no certificate"};
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
    case SSL_R_NO_PROTOCOLS_AVAILABLE:
    case SSL_R_WRONG_SSL_VERSION: return {proxy_event_kind::bad_protocol, "does not support TLS 1.2 or later"};
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
      return {proxy_event_kind::bad_protocol, "has no cipher in common with us: is its TLS library a very old one?"};
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_UNKNOWN_PROTOCOL:
    case SSL_R_RECORD_LENGTH_MISMATCH:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_BAD_RECORD_TYPE:
    case SSL_R_UNEXPECTED_MESSAGE:
      return {proxy_event_kind::bad_protocol, "does not speak TLS: is it in plain mode, or not a process of troupe?"};
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
      return {proxy_event_kind::broken, "closed the connection without TLS's close_notify"};
    default: return {};
  }
}

} // namespace

std::string certificate_fault_text(long verify_code, const std::string& expected_peer) {
  switch (verify_code) {
    case X509_V_ERR_CERT_HAS_EXPIRED: return "presented a certificate that has expired";
    case X509_V_ERR_CERT_NOT_YET_VALID: return "presented a certificate that is not valid yet: compare the clocks";
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_CERT_UNTRUSTED: return "presented a certificate that is not signed by our CA";
    case X509_V_ERR_INVALID_PURPOSE:
      return "presented a certificate that is not made for its side (a controller's is for servers, a host's for "
             "clients)";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH: return "presented a certificate that does not name '" + expected_peer + "'";
    default:
      return "presented a certificate that is not accepted (" +
             std::string{X509_verify_cert_error_string(verify_code)} + ")";
  }
}

proxy_fault tls_fault(const ssl_st& session, const tls_failure& failure) {
  const std::string when = failure.in_handshake ? " during the TLS handshake" : "";
  const unsigned long code = ERR_peek_error();
  if (failure.returned == SSL_ERROR_SYSCALL || code == 0)
    return {
        proxy_event_kind::broken,
        "broke the connection off" + when +
            (failure.system_code == 0 ? std::string{} : " (" + std::string{std::strerror(failure.system_code)} + ")")};
  const int reason = ERR_GET_REASON(code);
  if (proxy_fault of_us = alert_fault(reason); !of_us.text.empty()) return of_us;
  if (proxy_fault of_peer = own_fault(session, reason, failure.expected_peer); !of_peer.text.empty()) {
    if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING && failure.in_handshake)
      of_peer.text = "closed the connection" + when;
    return of_peer;
  }
  return {proxy_event_kind::bad_protocol, "violated the TLS protocol" + when + " (" + reason_words(code) + ")"};
}

namespace {

/// TLS takes the length as an int; a record has at most 16 KiB anyway.
constexpr std::size_t most_tls_bytes = 1u << 20;

constexpr std::string_view binding_label = "EXPORTER-troupe-guard";

int tls_length(std::size_t bytes) {
  return static_cast<int>(std::min(bytes, most_tls_bytes));
}

void expect_peer(SSL* tls, const std::string& name) {
  X509_VERIFY_PARAM* rules = SSL_get0_param(tls);
  X509_VERIFY_PARAM_set_hostflags(rules, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  if (X509_VERIFY_PARAM_set1_ip_asc(rules, name.c_str()) == 1) return;
  if (X509_VERIFY_PARAM_set1_host(rules, name.c_str(), name.size()) != 1)
    throw exception{errc::invalid_argument, "'" + name + "' is not a name that a certificate can have"};
}

} // namespace

proxy_channel::proxy_channel(file_descriptor socket, ssl_ctx_st& context, proxy_side side,
                             const std::string& expected_peer)
  : socket_{std::move(socket)}, tls_{SSL_new(&context)}, side_{side}, expected_peer_{expected_peer} {
  if (!tls_ || SSL_set_fd(tls_.get(), socket_.native()) != 1)
    throw exception{errc::out_of_memory, "OpenSSL could not make the TLS side of a connection"};
  if (!expected_peer_.empty()) expect_peer(tls_.get(), expected_peer_);
  side == proxy_side::listener ? SSL_set_accept_state(tls_.get()) : SSL_set_connect_state(tls_.get());
}

channel_progress proxy_channel::fail(proxy_event_kind kind, std::string text) {
  fault_ = {kind, std::move(text)};
  return channel_progress::failed;
}

channel_progress proxy_channel::judge_system(short& events, short wanted) {
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    events = wanted;
    return channel_progress::blocked;
  }
  return fail(proxy_event_kind::broken, "broke the connection off (" + std::string{std::strerror(errno)} + ")");
}

channel_progress proxy_channel::judge_tls(int returned, short& events, bool is_handshake) {
  const int system_code = errno;
  const int kind = SSL_get_error(tls_.get(), returned);
  switch (kind) {
    case SSL_ERROR_WANT_READ: events = POLLIN; return channel_progress::blocked;
    case SSL_ERROR_WANT_WRITE: events = POLLOUT; return channel_progress::blocked;
    case SSL_ERROR_ZERO_RETURN:
      return is_handshake ? fail(proxy_event_kind::broken, "ended the connection during the TLS handshake")
                          : channel_progress::ended;
    default: break;
  }
  fault_ = tls_fault(
      *tls_,
      {.returned = kind, .system_code = system_code, .in_handshake = is_handshake, .expected_peer = expected_peer_});
  ERR_clear_error();
  return channel_progress::failed;
}

channel_progress proxy_channel::handshake() {
  if (!tls_) return channel_progress::done;
  ERR_clear_error();
  errno = 0;
  const int returned = SSL_do_handshake(tls_.get());
  return returned == 1 ? channel_progress::done : judge_tls(returned, read_events_, true);
}

channel_progress proxy_channel::read(std::span<std::uint8_t> into, std::size_t& count) {
  count = 0;
  if (tls_) {
    ERR_clear_error();
    errno = 0;
    const int returned = SSL_read(tls_.get(), into.data(), tls_length(into.size()));
    if (returned <= 0) return judge_tls(returned, read_events_, false);
    count = static_cast<std::size_t>(returned);
    return channel_progress::done;
  }
  const ssize_t returned = ::recv(socket_.native(), into.data(), into.size(), 0);
  if (returned == 0) return channel_progress::ended;
  if (returned < 0) return judge_system(read_events_, POLLIN);
  count = static_cast<std::size_t>(returned);
  return channel_progress::done;
}

channel_progress proxy_channel::write(std::span<const std::uint8_t> from, std::size_t& count) {
  count = 0;
  if (tls_) {
    ERR_clear_error();
    errno = 0;
    const int returned = SSL_write(tls_.get(), from.data(), tls_length(from.size()));
    if (returned <= 0) return judge_tls(returned, write_events_, false);
    count = static_cast<std::size_t>(returned);
    return channel_progress::done;
  }
  const ssize_t returned = ::send(socket_.native(), from.data(), from.size(), MSG_NOSIGNAL);
  if (returned < 0) return judge_system(write_events_, POLLOUT);
  count = static_cast<std::size_t>(returned);
  return channel_progress::done;
}

channel_progress proxy_channel::finish() {
  // a failed session must not send a close notification
  if (tls_ && !fault_.text.empty()) return channel_progress::failed;
  if (!tls_) {
    ::shutdown(socket_.native(), SHUT_WR);
    return channel_progress::done;
  }
  ERR_clear_error();
  errno = 0;
  const int returned = SSL_shutdown(tls_.get()); // 0: sent, but not yet received from the other side
  return returned >= 0 ? channel_progress::done : judge_tls(returned, write_events_, false);
}

join_digest proxy_channel::binding() const {
  join_digest made{};
  if (!tls_) return made;
  if (SSL_export_keying_material(tls_.get(), made.data(), made.size(), binding_label.data(), binding_label.size(),
                                 nullptr, 0, 0) != 1)
    throw exception{errc::internal, "OpenSSL could not export a value of a TLS session"};
  return made;
}

} // namespace troupe
