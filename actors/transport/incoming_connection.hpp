/// Implements a connection at the controller's side. The peer is not trusted until it has been admitted.
#pragma once

#include <troupe/actors/transport/fixed_message.hpp>
#include <troupe/actors/transport/guard_splice.hpp>
#include <troupe/actors/transport/guarded_connection.hpp>
#include <troupe/actors/transport/preamble.hpp>

#include <memory>
#include <optional>

namespace troupe {

/// Runs the phases TLS handshake, greeting, claim, connection to the service behind the proxy, answer; then copies
/// bytes both ways. A refused peer gets the reason in one byte, if TLS and preamble got that far. Its socket is read
/// for a short time before it is closed, so that the reason arrives.
class incoming_connection final : public guarded_connection {
public:
  /// \p terms must outlive it. Errors: out_of_memory, internal.
  incoming_connection(guard_terms& terms, guard_socket socket, const guard_address& peer, time_point now);
  ~incoming_connection() override;

  void advance(time_point now) override;
  void gather(std::vector<pollfd>& into) const override;
  [[nodiscard]] time_point due() const noexcept override;
  [[nodiscard]] bool has_more() const noexcept override { return phase_ == phase::splice && splice_->has_more(); }
  [[nodiscard]] bool is_admitted() const noexcept override { return phase_ == phase::splice; }
  [[nodiscard]] bool is_over() const noexcept override { return phase_ == phase::over; }
  void cut(guard_event_kind kind, const std::string& why) override;

private:
  enum class phase : std::uint8_t { handshake, greet, claim, reach, answer, splice, refuse, leave, over };

  bool go_on(time_point now);
  bool settle(channel_progress got, phase next, time_point now);
  bool judge_claim(time_point now);
  bool reached(time_point now);
  void admit(time_point now);
  void run_splice(time_point now);
  void read_off();
  void refuse(guard_verdict verdict, guard_fault why, time_point now);
  void leave(const guard_fault& why, time_point now);
  void report_fault(const guard_fault& why);

  guard_terms& terms_;
  std::string peer_;
  guard_channel outside_;
  guard_channel inside_;
  phase phase_ = phase::handshake;
  time_point deadline_;
  bool is_reported_ = false;
  join_occasion occasion_;
  fixed_message<guard_greeting_bytes> greeting_;
  fixed_message<guard_claim_bytes> claim_;
  fixed_message<guard_answer_bytes> answer_;
  std::optional<guard_splice> splice_;
};

} // namespace troupe
