// Fuzzes the input of a listener or dialer of the control transport. The first byte selects the side, and whether it is
// admitted already; the second byte is the size of the pieces in which the bytes arrive, minus 1.
#include "fuzz_target.hpp"

#include <troupe/processes/transport/connection.hpp>

#include <algorithm>
#include <string>

using namespace troupe;

namespace {

const time_point begin{std::chrono::hours{1}};

connection_terms terms_of(connection_side side) {
  return {side, transport_mode::plain, {.frame_bytes = 1u << 16u}, {.token = "a token for fuzzing"}, "1", {}};
}

/// Passes the output of one end to the other.
void carry(connection& from, connection& to) {
  const std::string bytes = from.take_output();
  if (!bytes.empty()) to.receive(bytes, begin);
  from.sent(bytes.size(), begin);
}

} // namespace

TROUPE_FUZZ_TARGET() {
  if (text.size() < 2) return;
  const auto how = static_cast<unsigned char>(text[0]);
  const std::size_t piece = 1 + static_cast<unsigned char>(text[1]);
  static connection_terms of_listener = terms_of(connection_side::listener),
                          of_dialer = terms_of(connection_side::dialer);
  connection listener{of_listener, "listener's peer", begin}, dialer{of_dialer, "dialer's peer", begin};
  const bool is_admitted = (how & 2) != 0;
  if (is_admitted)
    for (int i = 0; i < 2; ++i) {
      carry(listener, dialer);
      carry(dialer, listener);
    }
  connection& one = (how & 1) != 0 ? listener : dialer;
  fuzz::require(!is_admitted || (listener.is_open() && (carry(listener, dialer), dialer.is_open())),
                "both are admitted");
  std::size_t delivered = 0;
  for (std::size_t at = 2; at < text.size(); at += piece) {
    one.receive(text.substr(at, piece), begin);
    for (const std::string& message : one.take_messages()) {
      fuzz::require(!message.empty() && message.size() <= 1u << 16u, "a message is within its bounds");
      delivered += message.size();
    }
  }
  fuzz::require(delivered <= text.size(), "no more is delivered than was sent");
  fuzz::require(is_admitted || !one.was_admitted(), "SEC-2: nobody is admitted without the token");
  fuzz::require(is_admitted || delivered == 0, "SEC-2: nothing is delivered before");
  fuzz::require(!one.fault() || !one.fault()->text.empty(), "a refusal says why");
  one.receive_end(begin);
  fuzz::require(one.fault().has_value(), "an end is reported");
}
