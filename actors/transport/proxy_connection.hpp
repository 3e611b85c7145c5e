/// Implements the connections of a TLS proxy, from the first byte of the preamble to the last forwarded byte.
#pragma once

#include <troupe/actors/transport/openssl_owner.hpp>
#include <troupe/actors/transport/preamble.hpp>
#include <troupe/actors/transport/proxy_options.hpp>
#include <troupe/actors/transport/proxy_socket.hpp>
#include <troupe/actors/transport/proxy_splice.hpp>

#include <poll.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// The state that a proxy's connections share. Threads: created by one thread, then used by the proxy's thread only.
struct proxy_state {
  proxy_state(proxy_mode wanted, const proxy_limits& bounds, std::string_view token, std::string peer_name)
    : mode{wanted}, limits{bounds}, secret{token}, expected_peer{std::move(peer_name)} {}

  void report(proxy_event_kind kind, std::string peer, std::string text) const noexcept;
  /// Reports an event of a connection that has not been admitted: at most limits.reports within limits.report_window,
  /// so that unauthenticated peers cannot fill the owner's log. Further events are counted, and the next window begins
  /// with the count.
  void report_stranger(proxy_event_kind kind, std::string peer, std::string text) noexcept;

  proxy_mode mode;
  proxy_limits limits;
  join_secret secret;
  std::string expected_peer;
  openssl_owner<ssl_ctx_st> tls; ///< TLS context; null in plain mode.
  proxy_event_sink on_event;
  std::function<file_descriptor()> connect_inside; ///< Connects to the service behind a listener; empty for a dialer.
  int admitted = 0;                                ///< Present number of admitted connections.

private:
  time_point window_end_{};    ///< End of the present report window.
  int reported_ = 0;           ///< Events of unadmitted connections reported in this window.
  std::uint64_t left_out_ = 0; ///< Events not reported in this window.
};

/// Reads or writes one preamble message of exactly N bytes, in as many calls as needed. Threads: one.
template <std::size_t N>
class fixed_message {
public:
  fixed_message() noexcept = default;
  explicit fixed_message(const std::array<std::uint8_t, N>& bytes) noexcept : bytes_{bytes} {}

  /// Reads more bytes. Returns done when all bytes have been read.
  [[nodiscard]] channel_progress read(proxy_channel& from) {
    while (moved_ < N) {
      std::size_t count = 0;
      const channel_progress got = from.read(std::span{bytes_}.subspan(moved_), count);
      if (got != channel_progress::done) return got;
      moved_ += count;
    }
    return channel_progress::done;
  }

  /// Writes more bytes. Returns done when all bytes have been written.
  [[nodiscard]] channel_progress write(proxy_channel& to) {
    while (moved_ < N) {
      std::size_t count = 0;
      const channel_progress got = to.write(std::span<const std::uint8_t>{bytes_}.subspan(moved_), count);
      if (got != channel_progress::done) return got;
      moved_ += count;
    }
    return channel_progress::done;
  }

  [[nodiscard]] std::span<const std::uint8_t, N> bytes() const noexcept { return bytes_; }

private:
  std::array<std::uint8_t, N> bytes_{};
  std::size_t moved_ = 0;
};

/// One connection of a TLS proxy: its phases before admission, which differ by side, and the copying of bytes both ways
/// after it. Threads: the proxy's thread only.
class proxy_connection {
public:
  proxy_connection(const proxy_connection&) = delete;
  proxy_connection& operator=(const proxy_connection&) = delete;
  virtual ~proxy_connection();

  /// Advances as far as possible without waiting.
  void advance(time_point now);
  /// Appends the poll events that it waits for, and no others.
  void gather(std::vector<pollfd>& into) const;
  /// Returns the latest time of the next advance().
  [[nodiscard]] time_point due() const noexcept { return is_admitted() ? splice_->due() : deadline_; }
  /// Returns whether advance() can continue without waiting.
  [[nodiscard]] bool has_more() const noexcept { return is_admitted() && splice_->has_more(); }
  [[nodiscard]] bool is_admitted() const noexcept { return phase_ == phase::splice; }
  /// Returns whether it may be destroyed, which closes its sockets.
  [[nodiscard]] bool is_over() const noexcept { return phase_ == phase::over; }
  /// Ends it now and reports why, unless it has been reported already.
  void cut(proxy_event_kind kind, const std::string& why);

protected:
  /// A listener's connections begin with the handshake and use neither dial nor connect; a dialer's begin with dial and
  /// use neither reach, refuse nor leave.
  enum class phase : std::uint8_t {
    dial,
    connect,
    handshake,
    greet,
    claim,
    reach,
    answer,
    splice,
    refuse,
    leave,
    over
  };

  proxy_connection(proxy_state& shared, proxy_side side, phase first, std::string peer, time_point deadline);

  /// Runs the present phase. Returns whether another phase can run at once.
  virtual bool step(time_point now) = 0;
  /// Ends a connection whose deadline has passed before it was admitted.
  virtual void expire(time_point now) = 0;
  /// Ends a connection that has failed before it was admitted. The fault's text is a predicate about the peer.
  virtual void give_up(const proxy_fault& why, time_point now) = 0;
  /// Returns the event text for the end of an admitted connection. \p why is null if the connection ended normally.
  [[nodiscard]] virtual std::string describe_end(const proxy_fault* why, bool is_outside) const = 0;
  /// Returns the socket that the phases connect and reach wait for.
  [[nodiscard]] virtual int connecting() const noexcept = 0;

  /// Enters the phase \p next if the present one is done, and gives up if it failed.
  bool settle(channel_progress got, phase next, time_point now);
  void admit(const std::string& text, time_point now);
  void run_splice(time_point now);
  void report_once(const proxy_fault& why);
  [[nodiscard]] proxy_fault too_slow_fault() const;

  proxy_state& shared_;
  proxy_side side_;
  phase phase_;
  std::string peer_; ///< The other side's address in messages: "10.0.0.1:7000".
  proxy_channel outside_;
  proxy_channel inside_;
  time_point deadline_;
  handshake_transcript transcript_;
  fixed_message<join_greeting_bytes> greeting_;
  fixed_message<join_claim_bytes> claim_;
  fixed_message<join_answer_bytes> answer_;

private:
  std::optional<proxy_splice> splice_;
  bool is_reported_ = false;
};

/// A connection at the controller's side. The peer is not trusted until it has been admitted. The phases are TLS
/// handshake, greeting, claim, connection to the service behind the proxy, answer. A refused peer gets the reason in
/// one byte, if TLS and preamble got that far. Its socket is read for a short time before it is closed, so that the
/// reason arrives.
class incoming_connection final : public proxy_connection {
public:
  /// \p shared must outlive it. Errors: out_of_memory, internal.
  incoming_connection(proxy_state& shared, file_descriptor socket, const proxy_address& peer, time_point now);

private:
  bool step(time_point now) override;
  void expire(time_point now) override;
  void give_up(const proxy_fault& why, time_point now) override;
  [[nodiscard]] std::string describe_end(const proxy_fault* why, bool is_outside) const override;
  [[nodiscard]] int connecting() const noexcept override { return inside_.descriptor(); }

  bool judge_claim(time_point now);
  bool reached(time_point now);
  void read_off();
  void refuse(join_verdict verdict, const proxy_fault& why, time_point now);
};

/// The target of a dialer's connections.
struct proxy_destination {
  std::string name;                     ///< The address in messages: "10.0.0.1:7000".
  std::vector<proxy_address> addresses; ///< Addresses to try, in this order; at least one.
};

/// A connection at a process's side, from CAF in this process to the controller's TLS proxy. It connects, performs the
/// handshake, and proves that it knows the token; the other side must prove it too.
class outgoing_connection final : public proxy_connection {
public:
  /// \p shared and \p to must outlive it.
  outgoing_connection(proxy_state& shared, file_descriptor from, const proxy_destination& to, time_point now);

private:
  bool step(time_point now) override;
  void expire(time_point now) override;
  void give_up(const proxy_fault& why, time_point now) override;
  [[nodiscard]] std::string describe_end(const proxy_fault* why, bool is_outside) const override;
  [[nodiscard]] int connecting() const noexcept override { return connecting_.native(); }

  void dial();
  bool connected(time_point now);
  bool claim_place();
  bool judge_answer(time_point now);
  bool fail(proxy_event_kind kind, const std::string& predicate);

  const proxy_destination& to_;
  std::size_t next_address_ = 0;
  file_descriptor connecting_;
  int connect_code_ = 0; ///< The errno of the last failed attempt to connect.
};

} // namespace troupe
