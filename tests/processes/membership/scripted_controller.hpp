/// A controller whose messages the test writes.
#pragma once

#include "support/transport/loopback_client.hpp"

#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/processes/control/control_codec.hpp>
#include <troupe/processes/membership/controlled_membership.hpp>
#include <troupe/processes/transport/transport.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace troupe::tests {

/// The version that troupe's processes name when they join.
inline std::string version_of_troupe() {
  mock_driver api{{.device_count = 1}};
  return describe_process(configuration{}, api, *make_mock_backend(), device_id{0}).facts.at(0).value;
}

/// Listens on loopback, keeps what its peers say, and sends the latest of them what the test wants.
class scripted_controller {
public:
  static constexpr session_id session = 77;
  static inline const std::string token = "a secret of these tests";

  scripted_controller() : version_{version_of_troupe()} { open(); }
  scripted_controller(const scripted_controller&) = delete;
  scripted_controller& operator=(const scripted_controller&) = delete;
  ~scripted_controller() { close(); }

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  /// Ends all connections, and listens no longer.
  void close() { listener_.reset(); }
  /// Listens again, at the same port.
  void open() {
    listener_ = std::make_unique<transport_listener>(transport_listener_options{
        .port = port_,
        .version = version_,
        .credentials = {.token = token},
        .on_message = [this](peer_id from, std::string bytes) { hear(from, std::move(bytes)); },
        .on_lost =
            [this](peer_id, const transport_fault&) {
              const std::lock_guard lock{mutex_};
              ++lost_;
              changed_.notify_all();
            }});
    port_ = listener_->port();
  }

  /// Ends all connections inside of a frame, as those of a process that was killed.
  void cut() {
    for (int descriptor = 0; descriptor < 1024; ++descriptor) {
      sockaddr_in own{}, other{};
      socklen_t length = sizeof own, other_length = sizeof other;
      if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &length) != 0 || own.sin_family != AF_INET ||
          ntohs(own.sin_port) != port_ ||
          ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&other), &other_length) != 0)
        continue;
      static_cast<void>(::send(descriptor, "frame", 5, MSG_NOSIGNAL));
      ::shutdown(descriptor, SHUT_WR);
    }
  }

  /// Returns the bytes of the next message, without the ones before it; nothing if none comes within 20 s.
  [[nodiscard]] std::optional<std::string> next() {
    std::unique_lock lock{mutex_};
    if (!changed_.wait_for(lock, std::chrono::seconds{20}, [this] { return !heard_.empty(); })) return std::nullopt;
    std::string bytes = std::move(heard_.front());
    heard_.pop_front();
    return bytes;
  }
  /// Returns the next Message, and drops the others before it; nothing if none comes within 20 s.
  template <class Message>
  [[nodiscard]] std::optional<Message> next_of() {
    while (const auto bytes = next()) {
      error why;
      auto frame = decode_process_frame(*bytes, why);
      if (!frame) continue;
      said_in_ = frame->session;
      if (auto* const found = std::get_if<Message>(&frame->what)) return std::move(*found);
    }
    return std::nullopt;
  }
  /// The session that the message of the latest next_of() named.
  [[nodiscard]] session_id said_in() const noexcept { return said_in_; }

  /// Sends to the peer that has spoken last.
  void send(std::string bytes) {
    const std::lock_guard lock{mutex_};
    listener_->send(peer_, std::move(bytes));
  }
  void say(controller_message what, session_id in = session) { send(encode(controller_frame{in, std::move(what)})); }
  void welcome() {
    say(join_welcome{
        .session = session, .heartbeat = std::chrono::milliseconds{50}, .suspicion = std::chrono::seconds{60}});
  }

  /// Returns whether \p count peers have ended their connections within \p at_most.
  [[nodiscard]] bool loses(int count, std::chrono::milliseconds at_most = std::chrono::seconds{20}) {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, at_most, [&] { return lost_ >= count; });
  }

private:
  void hear(peer_id from, std::string bytes) {
    const std::lock_guard lock{mutex_};
    peer_ = from;
    heard_.push_back(std::move(bytes));
    changed_.notify_all();
  }

  const std::string version_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> heard_;
  peer_id peer_{};
  int lost_ = 0;
  session_id said_in_ = 0;
  std::uint16_t port_ = 0;
  std::unique_ptr<transport_listener> listener_; ///< Destroyed first, because it calls into the other members.
};

} // namespace troupe::tests
