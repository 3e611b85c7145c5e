/// The link of a process to its controller, whose frames a test writes and reads.
#pragma once

#include <troupe/processes/control/control_codec.hpp>
#include <troupe/processes/control/process_session.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::tests {

using namespace std::chrono_literals;

/// A process_session on a manual clock. The test acts as the controller: hear() delivers its messages to the process.
/// told() returns what the process has sent; got() returns the directives that its world has received.
struct frames_scene {
  static constexpr session_id session = 7;

  explicit frames_scene(orphan_policy policy = orphan_policy::leave,
                        std::shared_ptr<manual_clock> shared_time = std::make_shared<manual_clock>(),
                        std::function<std::optional<gate_connection>()> knock = {})
    : time{std::move(shared_time)},
      link{std::make_shared<process_session>(
          session_services{.time = time,
                           .send = [this](const std::string& bytes) { take(bytes); },
                           .patience = 30s,
                           .ends_with_controller = policy == orphan_policy::leave},
          join_request{.token = "secret", .who = {.name = "0", .host = "here", .pid = 12}},
          process_services{.deliver =
                               [this](controller_directive what) {
                                 const std::lock_guard lock{mutex};
                                 delivered.push_back(std::move(what));
                               },
                           .make_id = [this](const auto& give) { naming = give; },
                           .abandoned = [this](const error& why) { abandoned = why; },
                           .knock = std::move(knock),
                           .without_rings = [this](const error& why) { without_rings = why; }})} {}

  void take(const std::string& bytes) {
    error why;
    auto frame = decode_process_frame(bytes, why);
    REQUIRE(frame);
    const std::lock_guard lock{mutex};
    said.push_back(*std::move(frame));
  }
  void join() {
    if (!std::exchange(is_introduced, false)) static_cast<void>(link->introduction());
    hear(join_welcome{.session = session, .heartbeat = 250ms, .suspicion = 10s});
  }
  void hear(controller_message what, session_id by = session) {
    link->receive(encode(controller_frame{by, std::move(what)}));
  }
  void form(epoch of) { hear(formation_directive{.of = of, .self = rank{0}, .world_size = 2, .names = {"0", "1"}}); }
  /// Lets \p span pass, and calls tick() every 20 ms. Returns whether the link wants a connection at the
  /// end.
  bool pass(nanoseconds span) {
    bool is_wanted = false;
    for (nanoseconds passed{}; passed < span; passed += 20ms) {
      time->advance(20ms);
      is_wanted = link->tick();
    }
    return is_wanted;
  }
  /// Does the same as pass(), while the controller sends heartbeats.
  void pass_in_peace(nanoseconds span) {
    for (nanoseconds passed{}; passed < span; passed += 100ms) {
      hear(heartbeat{});
      pass(100ms);
    }
  }
  template <class Message>
  [[nodiscard]] std::vector<Message> got() const {
    const std::lock_guard lock{mutex};
    std::vector<Message> found;
    for (const controller_directive& one : delivered)
      if (const auto* what = std::get_if<Message>(&one.what)) found.push_back(*what);
    return found;
  }
  template <class Message>
  [[nodiscard]] std::vector<Message> told() const {
    const std::lock_guard lock{mutex};
    std::vector<Message> found;
    for (const process_frame& one : said)
      if (const auto* what = std::get_if<Message>(&one.what)) found.push_back(*what);
    return found;
  }
  [[nodiscard]] join_request introduction() {
    is_introduced = true;
    error why;
    const auto frame = decode_process_frame(link->introduction(), why);
    REQUIRE(frame);
    CHECK(frame->session == 0); // it has none yet
    return std::get<join_request>(frame->what);
  }

  std::shared_ptr<manual_clock> time;
  mutable std::mutex mutex; ///< Needed because a link with rings also calls from their thread.
  std::vector<process_frame> said;
  std::vector<controller_directive> delivered;
  std::function<void(const error&, const unique_id&)> naming;
  bool is_introduced = false; ///< Since the latest join().
  std::optional<error> abandoned;
  std::optional<error> without_rings;
  std::shared_ptr<process_session> link;
};

} // namespace troupe::tests
