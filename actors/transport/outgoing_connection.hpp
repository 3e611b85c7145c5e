/// Implements a connection at a process's side: from CAF in this process to the controller's TLS proxy.
#pragma once

#include <troupe/actors/transport/fixed_message.hpp>
#include <troupe/actors/transport/guard_splice.hpp>
#include <troupe/actors/transport/guarded_connection.hpp>
#include <troupe/actors/transport/preamble.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// The target of a dialer's connections.
struct guard_destination {
  std::string name;                     ///< The name for people: "10.0.0.1:7000".
  std::vector<guard_address> addresses; ///< Tried in this order; at least one.
};

/// Connects, performs the handshake, and proves that it knows the token; the other side must prove it too. Then copies
/// bytes both ways.
class outgoing_connection final : public guarded_connection {
public:
  /// \p terms and \p to must outlive it.
  outgoing_connection(guard_terms& terms, guard_socket from, const guard_destination& to, time_point now);
  ~outgoing_connection() override;

  void advance(time_point now) override;
  void gather(std::vector<pollfd>& into) const override;
  [[nodiscard]] time_point due() const noexcept override;
  [[nodiscard]] bool has_more() const noexcept override { return phase_ == phase::splice && splice_->has_more(); }
  [[nodiscard]] bool is_admitted() const noexcept override { return phase_ == phase::splice; }
  [[nodiscard]] bool is_over() const noexcept override { return phase_ == phase::over; }
  void cut(guard_event_kind kind, const std::string& why) override;

private:
  enum class phase : std::uint8_t { dial, connect, handshake, greeting, claim, answer, splice, over };

  bool go_on(time_point now);
  bool settle(channel_progress got, phase next);
  void dial();
  bool connected(time_point now);
  bool claim_place();
  bool judge_answer(time_point now);
  void run_splice(time_point now);
  bool fail(guard_event_kind kind, const std::string& predicate);

  guard_terms& terms_;
  const guard_destination& to_;
  guard_channel inside_;
  guard_channel outside_;
  phase phase_ = phase::dial;
  std::size_t next_address_ = 0;
  guard_socket connecting_;
  int connect_code_ = 0; ///< Why the last address could not be reached.
  time_point deadline_;
  bool is_reported_ = false;
  join_occasion occasion_;
  fixed_message<guard_greeting_bytes> greeting_;
  fixed_message<guard_claim_bytes> claim_;
  fixed_message<guard_answer_bytes> answer_;
  std::optional<guard_splice> splice_;
};

} // namespace troupe
