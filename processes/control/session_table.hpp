/// The controller's ends of its sessions with members that are not ranks.
#pragma once

#include <troupe/device/threads/running_clock.hpp>
#include <troupe/device/time.hpp>
#include <troupe/processes/control/control_codec.hpp>
#include <troupe/processes/control/peer_silence.hpp>
#include <troupe/processes/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// Sends a frame to a connection. Called from any thread; never blocks.
using frame_sender = std::function<void(peer_id to, std::string bytes)>;

/// Returns a function that sends batches of the order of an epoch in a session.
[[nodiscard]] inline std::function<void(std::string)> batch_sender(frame_sender send, peer_id to, session_id session,
                                                                   epoch of) {
  return [send = std::move(send), to, session, of](std::string bytes) {
    send(to, encode(controller_frame{session, order_batch{of, std::move(bytes)}}));
  };
}

/// The part of a member that its session needs.
struct peer_session {
  peer_id to{};
  peer_silence silence{};
};

/// The counterpart of control_session for all members of one role. \p Member derives from peer_session.
/// Threads: one call at a time.
template <class Member>
class session_table {
public:
  using table = std::map<session_id, Member>;
  using iterator = typename table::iterator;
  using value_type = typename table::value_type;

  /// \p send must outlive this object. It is not empty.
  explicit session_table(const frame_sender& send) : send_{send} {}

  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }
  [[nodiscard]] bool contains(session_id which) const { return all_.contains(which); }
  [[nodiscard]] iterator begin() noexcept { return all_.begin(); }
  [[nodiscard]] iterator end() noexcept { return all_.end(); }
  [[nodiscard]] iterator find(session_id which) { return all_.find(which); }
  [[nodiscard]] iterator find(peer_id from) {
    return std::ranges::find(all_, from, [](const auto& one) { return one.second.to; });
  }
  iterator erase(iterator which) { return all_.erase(which); }
  void clear() noexcept { all_.clear(); }

  /// Begins the session `welcome.session`, of which the member has not been silent.
  iterator admit(const join_welcome& welcome, Member made, running_time now) {
    const auto at = all_.insert_or_assign(welcome.session, std::move(made)).first;
    at->second.silence.end(now);
    send(*at, welcome);
    return at;
  }
  void send(const value_type& to, const controller_message& what) const {
    send_(to.second.to, encode(controller_frame{to.first, what}));
  }
  void send_to_all(const controller_message& what) const {
    for (const auto& one : all_) send(one, what);
  }
  /// Returns the members that have been silent for \p suspicion. Call it at each tick.
  [[nodiscard]] std::vector<session_id> find_silent(running_time now, nanoseconds suspicion) {
    std::vector<session_id> found;
    for (auto& [session, one] : all_)
      if (one.silence.exceeds(suspicion, now)) found.push_back(session);
    return found;
  }
  [[nodiscard]] std::function<void(std::string)> batch_sender_to(const value_type& to, epoch of) const {
    return batch_sender(send_, to.second.to, to.first, of);
  }

private:
  const frame_sender& send_;
  table all_;
};

} // namespace troupe
