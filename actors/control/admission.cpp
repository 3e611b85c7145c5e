// Decides whether a process may join a world, and states the reason for a refusal.
#include <troupe/actors/control/controller_state.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>

namespace troupe {

namespace {

constexpr std::array policies{loss_policy::fail, loss_policy::respawn, loss_policy::shrink};

error no(std::string text) {
  return {.code = errc::invalid_argument, .text = std::move(text)};
}

/// Compares in constant time, so that a token cannot be guessed character by character.
bool is_same_secret(std::string_view one, std::string_view other) noexcept {
  unsigned difference = one.size() == other.size() ? 0U : 1U;
  for (std::size_t i = 0; i < other.size(); ++i)
    difference |= static_cast<unsigned char>(other[i]) ^
                  static_cast<unsigned>(i < one.size() ? static_cast<unsigned char>(one[i]) : 0U);
  return difference == 0;
}

std::string milliseconds_text(std::int64_t ns) {
  return std::to_string(ns / 1'000'000) + " ms";
}

} // namespace

std::string_view to_string(loss_policy policy) noexcept {
  switch (policy) {
    case loss_policy::fail: return "fail";
    case loss_policy::respawn: return "respawn";
    case loss_policy::shrink: return "shrink";
  }
  return {};
}

loss_policy parse_loss_policy(std::string_view name) {
  for (const loss_policy one : policies)
    if (to_string(one) == name) return one;
  throw exception{errc::invalid_argument, "'" + std::string{name} +
                                              "' is nothing that can be done about a lost process: choose one of "
                                              "fail, respawn, shrink"};
}

std::string_view to_string(control_phase phase) noexcept {
  switch (phase) {
    case control_phase::gathering: return "gathering";
    case control_phase::forming: return "forming";
    case control_phase::serving: return "serving";
    case control_phase::quiescing: return "quiescing";
    case control_phase::rebuilding: return "rebuilding";
    case control_phase::finishing: return "finishing";
    case control_phase::stopping: return "stopping";
    case control_phase::failed: return "failed";
  }
  return {};
}

std::string describe(const process_identity& who) {
  return "process " + who.name + " (pid " + std::to_string(who.pid) + " on " + who.host + ")";
}

bool is_same_process(const process_identity& one, const process_identity& other) {
  return one.host == other.host && one.pid == other.pid && one.name == other.name;
}

std::string describe(const control_event& event) {
  std::string text = "world " + std::string{to_string(event.phase)} + " in epoch " + to_string(event.epoch) + " with " +
                     std::to_string(event.ranks) + " of " + std::to_string(event.world_size) + " ranks";
  if (event.spares > 0) text += ", " + std::to_string(event.spares) + " standing by";
  if (event.lost) text += "; lost: " + describe(*event.lost);
  if (event.since_detection)
    text += "; " + milliseconds_text(event.since_detection->count()) + " after the fault was known";
  if (event.reason) text += "; because of " + to_string(event.reason);
  return text;
}

error controller_state::objection_to(const join_request& asked, std::int64_t wall_clock_ns) const {
  if (asked.protocol != control_protocol)
    return no("the controller speaks control protocol " + std::to_string(control_protocol) + " and " +
              describe(asked.who) + " speaks " + std::to_string(asked.protocol) +
              ": run the same version of troupe everywhere");
  if (!terms_.token.empty() && !is_same_secret(terms_.token, asked.token))
    return no("the join token is not this world's: give every process that of its controller (TROUPE_JOIN_TOKEN)");
  if (phase_ == control_phase::stopping || phase_ == control_phase::finishing)
    return {.code = errc::stopping, .text = "the world is stopping: nobody can join it any more"};
  if (phase_ == control_phase::failed)
    return {.code = errc::world_failed, .text = "the world has ended: " + to_string(reason_)};
  if (asked.device_count > 0 && asked.local_device >= asked.device_count)
    return no(describe(asked.who) + " is to use device " + std::to_string(asked.local_device) + ", and its host has " +
              std::to_string(asked.device_count) + ": start no more processes there than it has devices");
  const std::int64_t skew = asked.wall_clock_ns - wall_clock_ns;
  if (std::abs(skew) > terms_.clock_skew.count())
    return no("the clock of " + asked.who.host + " says " + milliseconds_text(asked.wall_clock_ns) +
              " since 1970 and the controller's " + milliseconds_text(wall_clock_ns) + ", which are " +
              milliseconds_text(std::abs(skew)) + " apart, and may be " + milliseconds_text(terms_.clock_skew.count()) +
              ": set the clocks, or control.clock_skew");
  if (error why = objection_to_facts(asked)) return why;
  return objection_to_place(asked);
}

error controller_state::objection_to_facts(const join_request& asked) const {
  if (agreed_.empty()) return {};
  const auto find = [](const std::vector<shared_fact>& all, const std::string& name) {
    const auto found = std::ranges::find(all, name, &shared_fact::name);
    return found == all.end() ? std::string{"nothing"} : "'" + found->value + "'";
  };
  std::set<std::string> names;
  for (const shared_fact& one : agreed_) names.insert(one.name);
  for (const shared_fact& one : asked.facts) names.insert(one.name);
  for (const std::string& name : names)
    if (const std::string mine = find(asked.facts, name), theirs = find(agreed_, name); mine != theirs)
      return no(name + " is " + mine + " in " + describe(asked.who) + " and " + theirs +
                " in those that joined before: all processes of a world must have it alike");
  return {};
}

error controller_state::objection_to_place(const join_request& asked) const {
  if (asked.place && (*asked.place < 0 || *asked.place >= terms_.world_size))
    return no(describe(asked.who) + " asks for rank " + std::to_string(*asked.place) + " in a world of " +
              std::to_string(terms_.world_size) + ": start it with one of 0 to " +
              std::to_string(terms_.world_size - 1));
  if (asked.spare || (asked.place && asked.attempt > 0 && holder_of(*asked.place, &asked.who) != nullptr)) return {};
  if (asked.place) {
    if (const member* holder = holder_of(*asked.place, &asked.who))
      return no("rank " + std::to_string(*asked.place) + " is claimed by " + describe(asked.who) + ", and " +
                describe(holder->who) + " has it: give each process a rank of its own");
  } else if (free_places(&asked.who).empty()) {
    return no("the world has all its " + std::to_string(terms_.world_size) + " processes: " + describe(asked.who) +
              " can only join it as a spare (control.spare)");
  }
  if (const member* user = user_of_gpu(asked.who))
    return no(describe(asked.who) + " is to use GPU " + asked.who.gpu + ", which " + describe(user->who) +
              " uses: two ranks of one world cannot share a GPU");
  return {};
}

} // namespace troupe
