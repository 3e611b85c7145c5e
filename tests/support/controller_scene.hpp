/// Drives a controller's state in simulated time, for tests of its decisions.
#pragma once

#include <troupe/processes/control/controller_state.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests {

using namespace std::chrono_literals;

/// A controller's state, its effects so far, and its simulated time.
struct controller_scene {
  explicit controller_scene(controller_terms terms) : state{std::move(terms), now} {}

  /// Keeps effects. The processes answer at once what they are asked about their commits, unless they are in `silent`.
  void note(control_effects more) {
    std::vector<std::pair<session_id, epoch>> asked;
    for (auto& one : more) {
      const auto* sent = std::get_if<control_effect::send>(&one);
      const auto* wanted = sent == nullptr ? nullptr : std::get_if<commits_wanted>(&sent->what);
      if (wanted != nullptr && !silent.contains(sent->to)) asked.emplace_back(sent->to, wanted->of);
      all.push_back(std::move(one));
    }
    for (const auto& [link, of] : asked) say(link, commits_report{of, known[link]});
  }
  void join(session_id link, int place, const std::function<void(join_request&)>& change = {}) {
    join_request asked{.token = "secret",
                       .who = {.name = std::to_string(link), .host = "here", .pid = static_cast<std::int64_t>(link)},
                       .facts = {{"troupe", "1"}},
                       .place = place,
                       .device_count = 8};
    if (change) change(asked);
    note(state.on_join(link, asked, now, 0));
  }
  void say(session_id link, const process_message& what) { note(state.on_message(link, what, now)); }
  void pass(nanoseconds time, const std::vector<session_id>& alive) {
    for (const auto until = now + time; now < until;) {
      now += 20ms;
      for (const session_id one : alive) say(one, heartbeat{});
      note(state.on_tick(now));
    }
  }
  /// Reports from every link that has a rank in the current epoch that it has formed.
  void form(const std::vector<session_id>& all_links) {
    const epoch of = state.current_epoch();
    say(*state.session_of(rank{0}), id_offer{of, {}});
    for (const session_id one : all_links)
      if (state.rank_of(one, of)) say(one, formed_report{of});
  }

  template <class Message>
  [[nodiscard]] std::vector<Message> told(session_id link) const {
    std::vector<Message> found;
    for (const auto& one : all)
      if (const auto* sent = std::get_if<control_effect::send>(&one); sent && sent->to == link)
        if (const auto* what = std::get_if<Message>(&sent->what)) found.push_back(*what);
    return found;
  }
  template <class Effect>
  [[nodiscard]] std::size_t count() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(all, [](const auto& one) { return std::holds_alternative<Effect>(one); }));
  }
  [[nodiscard]] control_phase phase() const { return state.event().phase; }

  /// Returns whether the common order was closed before any Message was sent.
  template <class Message>
  [[nodiscard]] bool closed_before() const {
    for (const auto& one : all) {
      if (std::holds_alternative<control_effect::close_order>(one)) return true;
      const auto* sent = std::get_if<control_effect::send>(&one);
      if (sent && std::holds_alternative<Message>(sent->what)) return false;
    }
    return false;
  }

  boot_time now{1h};
  controller_state state;
  control_effects all;
  std::map<session_id, told_commits> known; ///< What the processes report.
  std::set<session_id> silent;              ///< Those that report nothing.
};

inline controller_terms terms_of(int size, recovery_policy policy = recovery_policy::keep_size) {
  controller_terms terms{.world_size = size};
  terms.recovery.policy = policy;
  terms.token = "secret";
  return terms;
}

} // namespace troupe::tests
