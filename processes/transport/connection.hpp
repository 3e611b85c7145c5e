/// One end of a control connection, from its first byte to its last: TLS, preamble, frames, deadlines and limits. It
/// has neither a socket nor a clock: the caller passes bytes and times, and gets bytes and messages.
#pragma once

#include <troupe/device/time.hpp>
#include <troupe/processes/transport/frame.hpp>
#include <troupe/processes/transport/frame_cipher.hpp>
#include <troupe/processes/transport/join_handshake.hpp>
#include <troupe/processes/transport/join_secret.hpp>
#include <troupe/processes/transport/openssl_owner.hpp>
#include <troupe/processes/transport/tls_session.hpp>
#include <troupe/processes/transport/transport_options.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// State that the connections of one listener or dialer share. Threads: one.
struct connection_terms {
  /// Reads and checks the credentials, and reports their warnings. Errors: as check_credentials; invalid_argument
  /// (limits, version).
  connection_terms(connection_side which, transport_mode mode, const transport_limits& bounds,
                   const transport_credentials& credentials, std::string_view troupe_version,
                   transport_event_sink sink);

  connection_side side;
  transport_limits limits;
  join_secret secret;
  join_version version;
  std::string expected_peer;
  transport_reports reports;
  openssl_owner<ssl_ctx_st> tls; ///< Null in plain mode.
  int admitted = 0;              ///< Present number of admitted connections.
};

/// For each event of the socket, call the function for it, then send take_output(), then read the other results. \p now
/// must not decrease. Threads: one.
class connection {
public:
  enum class phase : std::uint8_t {
    securing, ///< TLS handshake.
    joining,  ///< Preamble.
    open,     ///< Messages go both ways.
    leaving,  ///< The last bytes are sent; the peer's bytes are read and dropped, so that it receives them.
    over,     ///< The socket can be closed.
  };

  /// Begins at \p now, when a socket has been accepted or connected. \p peer names the other side for people:
  /// "10.0.0.1:7000". \p terms must outlive it. Errors: out_of_memory, internal.
  connection(connection_terms& terms, std::string peer, time_point now);
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;
  ~connection();

  /// Handles bytes that the socket has received. Pass at most 64 KiB per call, because they are buffered in memory.
  void receive(std::string_view bytes, time_point now);
  /// Call it when the peer has closed its direction of the socket.
  void receive_end(time_point now);
  /// Call it when the socket has failed. \p why is a predicate: "broke off the connection (…)".
  void lose(const std::string& why, time_point now);
  /// Appends a message. Does nothing unless the connection is open.
  void send(std::string_view payload, time_point now);
  /// Ends the connection after the bytes that wait have been sent. \p why is a predicate.
  void close(transport_event_kind kind, const std::string& why, time_point now);
  /// Checks the deadlines.
  void tick(time_point now);

  /// Returns all bytes that are to be sent now.
  [[nodiscard]] std::string take_output();
  /// Call it when the socket has accepted \p bytes of the output.
  void sent(std::size_t bytes, time_point now);
  /// Returns the messages received since the last call.
  [[nodiscard]] std::vector<std::string> take_messages();

  [[nodiscard]] phase present_phase() const noexcept { return phase_; }
  [[nodiscard]] bool is_open() const noexcept { return phase_ == phase::open; }
  /// Returns whether it has been admitted, even if it has ended since.
  [[nodiscard]] bool was_admitted() const noexcept { return was_admitted_; }
  [[nodiscard]] bool is_pending() const noexcept { return phase_ == phase::securing || phase_ == phase::joining; }
  [[nodiscard]] bool is_over() const noexcept { return phase_ == phase::over; }
  /// Returns why it has left its open phase, or was never admitted. The text is a sentence at a dialer, and a predicate
  /// about the peer at a listener.
  [[nodiscard]] const std::optional<transport_fault>& fault() const noexcept { return fault_; }
  /// Returns the latest time of the next tick().
  [[nodiscard]] time_point due() const noexcept;
  /// Returns the number of bytes that the socket has not accepted yet.
  [[nodiscard]] std::size_t unsent_bytes() const noexcept { return unsent_bytes_; }

private:
  void secure(time_point now);
  void begin_to_join();
  void parse(std::string_view bytes, time_point now);
  void join(const join_step& step, time_point now);
  void emit(std::string_view bytes);
  void gather();
  void give_up(const transport_fault& why, time_point now);
  void leave(time_point now);
  void settle() noexcept;

  connection_terms& terms_;
  std::string peer_;
  phase phase_;
  time_point deadline_;
  time_point last_received_;
  time_point last_sent_; ///< Time since which the first bytes of the output have waited.
  std::optional<tls_session> tls_;
  std::optional<join_handshake> handshake_;
  std::optional<frame_cipher> sealing_; ///< For messages of this side, without TLS and after the admission.
  std::optional<frame_cipher> opening_; ///< For messages of the other side.
  frame_parser parser_;
  std::string output_;
  std::size_t unsent_bytes_ = 0;
  std::vector<std::string> messages_;
  std::optional<transport_fault> fault_;
  bool was_admitted_ = false;
  bool has_input_ended_ = false;
};

} // namespace troupe
