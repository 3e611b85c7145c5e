#include <troupe/actors/transport/guard_channel.hpp>

#include <troupe/actors/transport/tls_faults.hpp>
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

guard_channel::guard_channel(guard_socket socket, ssl_ctx_st& context, guard_side side,
                             const std::string& expected_peer)
  : socket_{std::move(socket)}, tls_{SSL_new(&context)}, side_{side}, expected_peer_{expected_peer} {
  if (!tls_ || SSL_set_fd(tls_.get(), socket_.descriptor()) != 1)
    throw exception{errc::out_of_memory, "OpenSSL could not make the TLS side of a connection"};
  if (!expected_peer_.empty()) expect_peer(tls_.get(), expected_peer_);
  side == guard_side::listener ? SSL_set_accept_state(tls_.get()) : SSL_set_connect_state(tls_.get());
}

channel_progress guard_channel::fail(guard_event_kind kind, std::string text) {
  fault_ = {kind, std::move(text)};
  return channel_progress::failed;
}

channel_progress guard_channel::judge_system(short& events, short wanted) {
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    events = wanted;
    return channel_progress::blocked;
  }
  return fail(guard_event_kind::broken, "broke the connection off (" + std::string{std::strerror(errno)} + ")");
}

channel_progress guard_channel::judge_tls(int returned, short& events, bool is_handshake) {
  const int system_code = errno;
  const int kind = SSL_get_error(tls_.get(), returned);
  switch (kind) {
    case SSL_ERROR_WANT_READ: events = POLLIN; return channel_progress::blocked;
    case SSL_ERROR_WANT_WRITE: events = POLLOUT; return channel_progress::blocked;
    case SSL_ERROR_ZERO_RETURN:
      return is_handshake ? fail(guard_event_kind::broken, "ended the connection during the TLS handshake")
                          : channel_progress::ended;
    default: break;
  }
  fault_ = tls_fault(
      *tls_,
      {.returned = kind, .system_code = system_code, .in_handshake = is_handshake, .expected_peer = expected_peer_});
  ERR_clear_error();
  return channel_progress::failed;
}

channel_progress guard_channel::handshake() {
  if (!tls_) return channel_progress::done;
  ERR_clear_error();
  errno = 0;
  const int returned = SSL_do_handshake(tls_.get());
  return returned == 1 ? channel_progress::done : judge_tls(returned, read_events_, true);
}

channel_progress guard_channel::read(std::span<std::uint8_t> into, std::size_t& count) {
  count = 0;
  if (tls_) {
    ERR_clear_error();
    errno = 0;
    const int returned = SSL_read(tls_.get(), into.data(), tls_length(into.size()));
    if (returned <= 0) return judge_tls(returned, read_events_, false);
    count = static_cast<std::size_t>(returned);
    return channel_progress::done;
  }
  const ssize_t returned = ::recv(socket_.descriptor(), into.data(), into.size(), 0);
  if (returned == 0) return channel_progress::ended;
  if (returned < 0) return judge_system(read_events_, POLLIN);
  count = static_cast<std::size_t>(returned);
  return channel_progress::done;
}

channel_progress guard_channel::write(std::span<const std::uint8_t> from, std::size_t& count) {
  count = 0;
  if (tls_) {
    ERR_clear_error();
    errno = 0;
    const int returned = SSL_write(tls_.get(), from.data(), tls_length(from.size()));
    if (returned <= 0) return judge_tls(returned, write_events_, false);
    count = static_cast<std::size_t>(returned);
    return channel_progress::done;
  }
  const ssize_t returned = ::send(socket_.descriptor(), from.data(), from.size(), MSG_NOSIGNAL);
  if (returned < 0) return judge_system(write_events_, POLLOUT);
  count = static_cast<std::size_t>(returned);
  return channel_progress::done;
}

channel_progress guard_channel::finish() {
  // a failed session must not send a close notification
  if (tls_ && !fault_.text.empty()) return channel_progress::failed;
  if (!tls_) {
    ::shutdown(socket_.descriptor(), SHUT_WR);
    return channel_progress::done;
  }
  ERR_clear_error();
  errno = 0;
  const int returned = SSL_shutdown(tls_.get()); // 0: sent, but not yet received from the other side
  return returned >= 0 ? channel_progress::done : judge_tls(returned, write_events_, false);
}

guard_digest guard_channel::binding() const {
  guard_digest made{};
  if (!tls_) return made;
  if (SSL_export_keying_material(tls_.get(), made.data(), made.size(), binding_label.data(), binding_label.size(),
                                 nullptr, 0, 0) != 1)
    throw exception{errc::internal, "OpenSSL could not export a value of a TLS session"};
  return made;
}

} // namespace troupe
