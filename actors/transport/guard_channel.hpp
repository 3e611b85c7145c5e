/// One socket's bytes, with TLS around them or without. Nothing here ever blocks.
#pragma once

#include <troupe/actors/transport/guard_event.hpp>
#include <troupe/actors/transport/guard_socket.hpp>
#include <troupe/actors/transport/join_secret.hpp>
#include <troupe/actors/transport/openssl_owner.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace troupe {

/// How far a call of a channel got.
enum class channel_progress : std::uint8_t {
  done,    ///< Some bytes went, or the step is over.
  blocked, ///< Nothing now: wait for what the channel waits for.
  ended,   ///< The other side said that it sends no more.
  failed,  ///< The connection is of no more use.
};

/// A socket, or TLS over one. Threads: one.
class guard_channel {
public:
  guard_channel() noexcept = default;
  /// Without TLS.
  explicit guard_channel(guard_socket socket) noexcept : socket_{std::move(socket)} {}
  /// With it. \p expected_peer, where not empty, is the DNS name or IP address that the other side's certificate has to
  /// name. Errors: out_of_memory, invalid_argument.
  guard_channel(guard_socket socket, ssl_ctx_st& context, guard_side side, const std::string& expected_peer);

  [[nodiscard]] int descriptor() const noexcept { return socket_.descriptor(); }
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(socket_); }

  /// TLS's handshake; done at once without TLS.
  [[nodiscard]] channel_progress handshake();

  /// Reads at most \p into.size() bytes, at least one where it is done. \p count says how many.
  [[nodiscard]] channel_progress read(std::span<std::uint8_t> into, std::size_t& count);

  /// Writes a part of \p from, at least one byte where it is done. After it was blocked the same bytes come first
  /// again.
  [[nodiscard]] channel_progress write(std::span<const std::uint8_t> from, std::size_t& count);

  /// Says that nothing more will be sent; what comes may still be read.
  [[nodiscard]] channel_progress finish();

  /// What poll is to wait for, so that a blocked read or write may go on.
  [[nodiscard]] short read_events() const noexcept { return read_events_; }
  [[nodiscard]] short write_events() const noexcept { return write_events_; }

  /// A value that both ends of this TLS session have and nobody else; zeros without TLS. After the handshake.
  [[nodiscard]] guard_digest binding() const;

  /// Why it failed.
  [[nodiscard]] const guard_fault& fault() const noexcept { return fault_; }

  /// Takes TLS off, after it has failed, so that what is under way can be read off before the socket is closed: else
  /// the system would cut off what the other side has yet to read.
  void drop_tls() noexcept { tls_.reset(); }

private:
  channel_progress judge_tls(int returned, short& events, bool is_handshake);
  channel_progress judge_system(short& events, short wanted);
  channel_progress fail(guard_event_kind kind, std::string text);

  guard_socket socket_;
  openssl_owner<ssl_st> tls_;
  guard_side side_ = guard_side::dialer;
  std::string expected_peer_;
  short read_events_ = 0x001;  ///< POLLIN
  short write_events_ = 0x004; ///< POLLOUT
  guard_fault fault_;
};

} // namespace troupe
