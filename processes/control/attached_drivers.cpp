#include <troupe/processes/control/attached_drivers.hpp>

#include <troupe/processes/control/control_codec.hpp>
#include <troupe/processes/control/controller_state.hpp>
#include <troupe/processes/order/peer_requests.hpp>
#include <troupe/processes/transport/shared_memory/peer_process.hpp>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <variant>

namespace troupe {

void attached_drivers::admit(peer_id from, std::optional<gate_connection> gate, const join_welcome& welcome,
                             running_time now) {
  for (auto it = all_.begin(); it != all_.end();) it = it->second.to == from ? forget(it) : std::next(it);
  const auto slot = free_slot();
  if (!slot) return;
  const auto index = static_cast<std::size_t>(*slot);
  if (index >= generations_.size()) generations_.resize(index + 1);
  int& generation = generations_[index];
  one_driver& made = all_[welcome.session];
  made = {.to = from, .where = attached_address(*slot, generation), .gate = std::move(gate)};
  generation = (generation + 1) % (std::numeric_limits<int>::max() / most_attached_lanes);
  made.silence.end(now);
  send(welcome.session, made, welcome);
  tell(latest_, ordered_);
}

error attached_drivers::objection() const {
  if (all_.size() >= most)
    return {.code = errc::busy,
            .text = std::to_string(most) + " drivers are attached to this world, which is the limit"};
  if (free_slot()) return {};
  return {.code = errc::busy,
          .text = "the ranks have not finished the requests of " + std::to_string(most_attached_lanes) +
                  " earlier drivers, which is the limit: try again later"};
}

std::optional<int> attached_drivers::free_slot() const {
  std::vector<bool> is_taken(most_attached_lanes);
  for (const auto& [link, one] : all_) is_taken[static_cast<std::size_t>(slot_of(one.where))] = true;
  for (const process_address one : order_.retiring()) is_taken[static_cast<std::size_t>(slot_of(one))] = true;
  const auto slot = static_cast<int>(std::ranges::find(is_taken, false) - is_taken.begin());
  return slot < most_attached_lanes ? std::optional{slot} : std::nullopt;
}

void attached_drivers::attach(session_id link, one_driver& to, epoch of) {
  order_route route{.send = [send = send_, peer = to.to, link, of](std::string bytes) {
    send(peer, encode(controller_frame{link, order_batch{of, std::move(bytes)}}));
  }};
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
}

void attached_drivers::tell(const world_report& now, epoch order) {
  latest_ = now;
  ordered_ = order;
  for (auto& [link, to] : all_) {
    if (order != epoch{} && to.attached != order) attach(link, to, order);
    world_report told = now;
    if (order != epoch{}) {
      told.address = to.where.value();
      told.has_rings = to.has_rings;
    }
    send(link, to, told);
  }
}

void attached_drivers::hear(session_id from, const process_message& what, time_point now, running_time running) {
  const auto found = all_.find(from);
  if (found == all_.end()) return;
  found->second.silence.end(running);
  if (std::holds_alternative<leave_notice>(what)) {
    forget(found);
    return;
  }
  const auto* const batch = std::get_if<order_batch>(&what);
  if (batch == nullptr || batch->of != found->second.attached) return;
  if (error why = order_.receive(found->second.where, batch->bytes, now)) refuse(found, std::move(why));
}

bool attached_drivers::lose(peer_id which) {
  const auto found = std::ranges::find(all_, which, [](const auto& one) { return one.second.to; });
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
  for (auto it = all_.begin(); it != all_.end();) {
    peer_silence& silence = it->second.silence;
    const auto present = it++;
    if (!silence.exceeds(suspicion, now)) continue;
    const auto shown = std::chrono::duration_cast<std::chrono::milliseconds>(silence.length(now)).count();
    refuse(present, {.code = errc::rank_lost, .text = "it has been silent for " + std::to_string(shown) + " ms"});
  }
}

void attached_drivers::beat() const {
  for (const auto& [link, to] : all_) send(link, to, heartbeat{});
}

void attached_drivers::send(session_id link, const one_driver& to, const controller_message& what) const {
  send_(to.to, encode(controller_frame{link, what}));
}

void attached_drivers::refuse(table::iterator which, error why) {
  why.text = "the driver is detached: " + why.text;
  send(which->first, which->second, world_report{.of = latest_.of, .is_over = true, .reason = std::move(why)});
  forget(which);
}

attached_drivers::table::iterator attached_drivers::forget(table::iterator which) {
  order_.detach(which->second.where);
  return all_.erase(which);
}

} // namespace troupe
