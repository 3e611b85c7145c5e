#include <troupe/device/overloaded.hpp>
#include <troupe/processes/control/host_session.hpp>
#include <troupe/processes/transport/shared_memory/peer_process.hpp>

#include <algorithm>
#include <utility>
#include <variant>

namespace troupe {

host_session::host_session(session_services session, process_identity who, std::string token, host_services services,
                           std::shared_ptr<order_service> service)
  : control_session{std::move(session)},
    who_{std::move(who)},
    token_{std::move(token)},
    services_{std::move(services)},
    service_{std::move(service)} {}

process_message host_session::introduce() {
  if (kept_.of != epoch{}) service_->leave_controller();
  return attach_request{.token = token_, .who = who_, .is_order_service = true};
}

void host_session::hear(controller_message& what) {
  std::visit(overloaded{
                 [&](const claim_directive& one) {
                   if (auto found = services_.claim(one.nonce)) gates_.push_back(std::move(found).value());
                 },
                 [&](const serve_directive& asked) { serve(asked); },
                 [&](const hold_order_directive& asked) { hold(asked); },
                 [&](const stop_directive& directive) {
                   over_ = directive.why ? directive.why : error{.code = errc::stopping, .text = "the world has ended"};
                 },
                 [](const auto&) {}, // for other roles
             },
             what);
}

bool host_session::follow(std::unique_lock<std::mutex>&, epoch of, std::string_view batch) {
  if (of != serves_) return true;
  error lost = service_->receive_from_controller(batch, now());
  if (!lost) {
    // The controller may have been replaced already. Its successor must not go on with an order that is closed.
    if (kept_.of == of && service_->is_closed()) end_order();
    return true;
  }
  services_.warned(lost);
  const rank first = lost.rank.value_or(rank{0});
  send(order_batch{serves_, encode(host_frame{.losses = {{first, std::move(lost)}}})});
  return false;
}

void host_session::hold(const hold_order_directive& asked) {
  order_held_report report{.of = asked.of, .next = asked.next};
  report.is_held = asked.of == serves_ && service_->hold(now());
  if (report.is_held) {
    held_ = asked.of;
    end_order();
  }
  send(report);
}

void host_session::end_order() {
  ended_ = serves_;
  kept_ = {};
}

void host_session::serve(const serve_directive& asked) {
  std::vector<std::pair<rank, ring_connection>> rings;
  for (const auto& [self, nonce] : asked.candidates) {
    auto gate = std::ranges::find(gates_, nonce, &gate_connection::nonce);
    if (gate == gates_.end()) {
      // The controller may have sent its claim_directive before this service joined.
      auto found = services_.claim(nonce);
      if (!found) continue;
      gates_.push_back(*std::move(found));
      gate = std::prev(gates_.end());
    }
    try {
      rings.emplace_back(self, ring_connection::offer(gate->socket, session_in(nonce, asked.of), self,
                                                      peer_process::of_socket(gate->socket), service_->bell()));
    } catch (const exception& failure) {
      error why = failure.why();
      why.text = "rank " + to_string(self) + " could not be given rings in shared memory: " + why.text;
      services_.warned(why);
      if (has_successors() && has_left(*gate)) left_.push_back(nonce);
      gates_.erase(gate);
    }
  }
  serving_report report{.of = asked.of};
  ended_ = {};
  const bool is_held = std::exchange(held_, epoch{}) == asked.previous;
  serves_ = {};
  kept_ = {};
  // Positions go on only where they are known, and for all ranks. A single rank on this host has no peers to agree with
  // here.
  const bool can_serve = asked.continued.empty()
                             ? rings.size() > 1
                             : is_held && rings.size() == static_cast<std::size_t>(asked.world_size);
  if (can_serve) {
    for (const auto& one : rings) report.ranks.push_back(one.first);
    const std::size_t count = rings.size();
    service_->open_host(asked.of, asked.world_size, std::move(rings), asked.previous, asked.limits,
                        lasting_batch_sender(asked.of), asked.told, asked.continued);
    serves_ = asked.of;
    if (count == static_cast<std::size_t>(asked.world_size)) {
      report.resume = service_->points();
      if (has_successors()) kept_ = report;
    }
  } else {
    service_->close({.code = errc::communicator_failed, .text = "this host no longer serves ranks"}, now());
  }
  services_.serving(asked.of, report.ranks.size());
  send(std::move(report));
}

void host_session::lost(const error& why, bool) {
  // The gate connections are kept: this service may join again.
  if (kept_.of == epoch{}) return close(why);
  service_->leave_controller();
}

void host_session::ended(const error& why) {
  over_ = why;
  close(why);
}

void host_session::close(const error& why) {
  kept_ = {};
  held_ = {};
  if (std::exchange(serves_, epoch{}) != epoch{})
    service_->close({.code = errc::communicator_failed, .text = "the controller is lost: " + why.text}, now());
}

void host_session::admitted() {
  if (kept_.of != epoch{}) {
    serving_report told = kept_;
    told.retiring = service_->retiring();
    send(std::move(told));
    service_->join_controller(); // what it sends follows the report, by which the controller goes on with the order
  }
  // Else the next controller would wait for this service, and ranks that ask for nothing do not notice.
  if (const epoch of = std::exchange(ended_, epoch{}); of != epoch{}) send(serving_report{.of = of});
  report_departures();
}

void host_session::work(time_point, running_time) {
  const std::lock_guard lock{mutex_};
  std::erase_if(gates_, [this](const gate_connection& one) {
    if (!has_left(one)) return false;
    if (has_successors()) left_.push_back(one.nonce); // others take the end of a connection for a proof
    return true;
  });
  if (!left_.empty()) report_departures();
}

void host_session::report_departures() {
  if (!is_in_session()) return;
  for (const ring_session& one : std::exchange(left_, {})) send(gate_closed{one});
}

std::optional<error> host_session::over() const {
  const std::lock_guard lock{mutex_};
  return over_;
}

} // namespace troupe
