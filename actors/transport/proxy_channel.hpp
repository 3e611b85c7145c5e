/// Reads and writes the bytes of one socket, with or without TLS, and describes TLS errors so that users can correct
/// them. No call blocks.
#pragma once

#include <troupe/actors/transport/openssl_owner.hpp>
#include <troupe/actors/transport/preamble.hpp>
#include <troupe/actors/transport/proxy_options.hpp>
#include <troupe/device/file_descriptor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

struct ssl_st;

namespace troupe {

/// Describes a failed OpenSSL call, in addition to the session.
struct tls_failure {
  int returned = 0;            ///< The result of SSL_get_error.
  int system_code = 0;         ///< errno directly after the call.
  bool in_handshake = false;   ///< Whether the call belonged to the handshake.
  std::string expected_peer{}; ///< The name that the other side's certificate must have; empty: any.
};

/// Reads the calling thread's queue of OpenSSL errors and returns the fault. The text holds fixed words only, nothing
/// that the peer sent.
[[nodiscard]] proxy_fault tls_fault(const ssl_st& session, const tls_failure& failure);

/// Returns why a certificate was not accepted, from the code X509_V_ERR_…, as a predicate: "presented a certificate
/// that has expired".
[[nodiscard]] std::string certificate_fault_text(long verify_code, const std::string& expected_peer);

/// The result of a channel operation.
enum class channel_progress : std::uint8_t {
  done,    ///< Some bytes were transferred, or the step is finished.
  blocked, ///< Nothing can be transferred now: wait for the channel's poll events.
  ended,   ///< The other side has announced that it sends no more.
  failed,  ///< The connection is unusable.
};

/// A plain socket, or TLS over a socket. Threads: one.
class proxy_channel {
public:
  proxy_channel() noexcept = default;
  /// Creates a channel without TLS.
  explicit proxy_channel(file_descriptor socket) noexcept : socket_{std::move(socket)} {}
  /// Creates a channel with TLS. If \p expected_peer is not empty, the other side's certificate must name this DNS name
  /// or IP address. Errors: out_of_memory, invalid_argument.
  proxy_channel(file_descriptor socket, ssl_ctx_st& context, proxy_side side, const std::string& expected_peer);

  [[nodiscard]] int descriptor() const noexcept { return socket_.native(); }
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(socket_); }

  /// Performs the TLS handshake. Without TLS it returns done at once.
  [[nodiscard]] channel_progress handshake();

  /// Reads at most \p into.size() bytes, and at least one if it returns done. \p count is the number of bytes read.
  [[nodiscard]] channel_progress read(std::span<std::uint8_t> into, std::size_t& count);

  /// Writes a part of \p from, at least one byte if it returns done. After it returned blocked, the next call must
  /// begin with the same bytes.
  [[nodiscard]] channel_progress write(std::span<const std::uint8_t> from, std::size_t& count);

  /// Announces that nothing more will be sent. Incoming bytes may still be read.
  [[nodiscard]] channel_progress finish();

  /// Returns the poll events after which a blocked read (or write) can continue.
  [[nodiscard]] short read_events() const noexcept { return read_events_; }
  [[nodiscard]] short write_events() const noexcept { return write_events_; }

  /// Returns a value that only the two ends of this TLS session know; zeros without TLS. Call it after the handshake.
  [[nodiscard]] join_digest binding() const;

  /// Returns why the channel failed.
  [[nodiscard]] const proxy_fault& fault() const noexcept { return fault_; }

  /// Removes TLS after it has failed, so that incoming bytes can be read before the socket is closed. Otherwise the
  /// system would discard data that the other side has not read yet.
  void drop_tls() noexcept { tls_.reset(); }

private:
  channel_progress judge_tls(int returned, short& events, bool is_handshake);
  channel_progress judge_system(short& events, short wanted);
  channel_progress fail(proxy_event_kind kind, std::string text);

  file_descriptor socket_;
  openssl_owner<ssl_st> tls_;
  proxy_side side_ = proxy_side::dialer;
  std::string expected_peer_;
  short read_events_ = 0x001;  ///< Initially POLLIN.
  short write_events_ = 0x004; ///< Initially POLLOUT.
  proxy_fault fault_;
};

} // namespace troupe
