#include <troupe/processes/control/attached_drivers.hpp>

#include <troupe/processes/control/controller_state.hpp>
#include <troupe/processes/order/peer_requests.hpp>
#include <troupe/processes/transport/shared_memory/peer_process.hpp>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <utility>
#include <variant>

namespace troupe {

namespace {

constexpr int most_generations = std::numeric_limits<int>::max() / most_attached_lanes;
/// The generations of a slot that one controller uses. It would need more only if that many drivers had the slot in
/// turn.
constexpr int generations_of_controller = 1024;

} // namespace

void attached_drivers::follow(std::uint64_t incarnation) {
  constexpr std::uint64_t controllers = most_generations / generations_of_controller;
  first_generation_ = static_cast<int>((incarnation + 1) % controllers) * generations_of_controller;
}

process_address attached_drivers::draw_address(int slot) {
  const auto index = static_cast<std::size_t>(slot);
  if (index >= generations_.size()) generations_.resize(index + 1, first_generation_);
  const int generation = std::exchange(generations_[index], (generations_[index] + 1) % most_generations);
  return attached_address(slot, generation);
}

void attached_drivers::admit(peer_id from, std::optional<gate_connection> gate, const join_welcome& welcome,
                             running_time now) {
  if (const auto before = all_.find(from); before != all_.end()) forget(before);
  const auto slot = free_slot();
  if (!slot) return;
  all_.admit(welcome, {{.to = from}, draw_address(*slot), std::move(gate)}, now);
  tell(latest_, ordered_);
}

error attached_drivers::objection() {
  if (all_.size() >= most)
    return {.code = errc::busy,
            .text = std::to_string(most) + " drivers are attached to this world, which is the limit"};
  if (free_slot()) return {};
  return {.code = errc::busy,
          .text = "the ranks have not finished the requests of " + std::to_string(most_attached_lanes) +
                  " earlier drivers, which is the limit: try again later"};
}

std::optional<int> attached_drivers::free_slot() {
  std::vector<bool> is_taken(most_attached_lanes);
  for (const auto& [session, one] : all_) is_taken[static_cast<std::size_t>(slot_of(one.where))] = true;
  for (const process_address one : order_.retiring()) is_taken[static_cast<std::size_t>(slot_of(one))] = true;
  const auto found = std::ranges::find(is_taken, false);
  return found != is_taken.end() ? std::optional{static_cast<int>(found - is_taken.begin())} : std::nullopt;
}

bool attached_drivers::attach(sessions::value_type& which, epoch of) {
  one_driver& to = which.second;
  const auto retiring = order_.retiring();
  if (std::ranges::find(retiring, slot_of(to.where), slot_of) != retiring.end()) {
    const auto slot = free_slot();
    if (!slot) return false;
    to.where = draw_address(*slot);
  }
  order_route route{.send = all_.batch_sender_to(which, of)};
  if (to.gate) {
    try {
      route.rings = ring_connection::offer(to.gate->socket, session_in(to.gate->nonce, of), rank{to.where.value()},
                                           peer_process::of_socket(to.gate->socket), order_.bell());
    } catch (const exception&) { // its requests go through the control connection
    }
  }
  to.has_rings = route.rings.has_value();
  to.attached = of;
  order_.attach(to.where, std::move(route));
  return true;
}

void attached_drivers::tell(const world_report& now, epoch order) {
  latest_ = now;
  ordered_ = order;
  for (auto& one : all_) {
    const one_driver& to = one.second;
    world_report told = now;
    if (order != epoch{} && to.attached != order && !attach(one, order)) {
      told.is_ready = false;
      told.reason = objection();
    }
    if (order != epoch{}) {
      told.address = to.where.value();
      told.has_rings = to.has_rings;
    }
    all_.send(one, told);
  }
}

void attached_drivers::hold(epoch next) {
  held_for_ = next;
  for (auto& one : all_) {
    one.second.is_held = false;
    all_.send(one, world_report{.of = ordered_, .is_held = true, .next = next});
  }
}

bool attached_drivers::are_held() {
  return std::ranges::all_of(all_,
                             [&](const auto& one) { return one.second.is_held || one.second.attached != ordered_; });
}

void attached_drivers::hear(session_id from, const process_message& what, time_point now, running_time running) {
  const auto found = all_.find(from);
  if (found == all_.end()) return;
  found->second.silence.end(running);
  if (std::holds_alternative<leave_notice>(what)) return forget(found);
  if (const auto* const held = std::get_if<held_notice>(&what)) {
    if (held->of == found->second.attached && held->next == held_for_) found->second.is_held = true;
    return;
  }
  const auto* const batch = std::get_if<order_batch>(&what);
  if (batch == nullptr || batch->of != found->second.attached) return;
  if (error why = order_.receive(found->second.where, batch->bytes, now)) refuse(found, std::move(why));
}

bool attached_drivers::lose(peer_id which) {
  const auto found = all_.find(which);
  if (found == all_.end()) return false;
  forget(found);
  return true;
}

void attached_drivers::detach_failed() {
  for (auto& [where, why] : order_.take_detached()) {
    const auto found = std::ranges::find(all_, where, [](const auto& one) { return one.second.where; });
    if (found != all_.end()) refuse(found, std::move(why));
  }
}

void attached_drivers::watch(running_time now, nanoseconds suspicion) {
  for (const session_id one : all_.find_silent(now, suspicion)) {
    const auto found = all_.find(one);
    const auto silent = std::chrono::duration_cast<std::chrono::milliseconds>(found->second.silence.length(now));
    refuse(found,
           {.code = errc::rank_lost, .text = "it has been silent for " + std::to_string(silent.count()) + " ms"});
  }
}

void attached_drivers::refuse(sessions::iterator which, error why) {
  why.text = "the driver is detached: " + why.text;
  all_.send(*which, world_report{.of = latest_.of, .is_over = true, .reason = std::move(why)});
  forget(which);
}

void attached_drivers::forget(sessions::iterator which) {
  order_.detach(which->second.where);
  all_.erase(which);
}

} // namespace troupe
