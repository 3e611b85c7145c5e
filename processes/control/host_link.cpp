#include <troupe/device/overloaded.hpp>
#include <troupe/processes/control/control_codec.hpp>
#include <troupe/processes/control/host_link.hpp>
#include <troupe/processes/transport/shared_memory/peer_process.hpp>

#include <algorithm>
#include <utility>
#include <variant>

namespace troupe {

host_link::host_link(process_identity who, std::string token, host_services services,
                     std::shared_ptr<order_service> service)
  : who_{std::move(who)},
    token_{std::move(token)},
    services_{std::move(services)},
    service_{std::move(service)},
    running_{services_.time->now(), admitted_.heartbeat} {}

std::string host_link::introduction() const {
  return encode(process_frame{0, attach_request{.token = token_, .who = who_, .is_order_service = true}});
}

void host_link::receive(std::string_view bytes) {
  error why;
  const auto frame = decode_controller_frame(bytes, why);
  const std::lock_guard lock{mutex_};
  if (!frame) return services_.warned(why);
  silence_.end(running_now());
  std::visit(overloaded{
                 [&](const join_welcome& welcome) {
                   admitted_ = welcome;
                   spoke_ = running_now();
                 },
                 [&](const join_refusal& refusal) { ended_ = refusal.why; },
                 [&](const claim_directive& one) {
                   if (auto found = services_.claim(one.nonce)) gates_.push_back(std::move(found).value());
                 },
                 [&](const serve_directive& asked) { serve(asked); },
                 [&](const order_batch& decided) {
                   if (decided.of != serves_) return;
                   if (error lost = service_->receive_from_controller(decided.bytes, services_.time->now())) {
                     services_.warned(lost);
                     const rank first = lost.rank.value_or(rank{0});
                     send(order_batch{serves_, encode(host_frame{.losses = {{first, std::move(lost)}}})});
                   }
                 },
                 [&](const stop_directive& directive) {
                   ended_ =
                       directive.why ? directive.why : error{.code = errc::stopping, .text = "the world has ended"};
                 },
                 [](const auto&) {}, // for processes
             },
             frame->what);
}

void host_link::serve(const serve_directive& asked) {
  std::vector<std::pair<rank, ring_connection>> rings;
  for (const auto& [self, nonce] : asked.candidates) {
    auto gate = std::ranges::find(gates_, nonce, &gate_connection::nonce);
    if (gate == gates_.end()) {
      auto found =
          services_.claim(nonce); // the controller may have sent its claim_directive before this service joined
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
      gates_.erase(gate);
    }
  }
  std::erase_if(gates_, has_left);
  serving_report report{.of = asked.of};
  serves_ = {};
  if (rings.size() > 1) { // a single rank on this host has no peers to agree with here
    for (const auto& one : rings) report.ranks.push_back(one.first);
    const std::size_t count = rings.size();
    service_->open_host(
        asked.of, asked.world_size, std::move(rings), asked.previous, asked.limits,
        [to = services_.send, session = admitted_.session, of = asked.of](std::string message) {
          to(encode(process_frame{session, order_batch{of, std::move(message)}}));
        },
        asked.told);
    serves_ = asked.of;
    if (count == static_cast<std::size_t>(asked.world_size)) report.resume = service_->points();
  } else {
    service_->close({.code = errc::communicator_failed, .text = "this host no longer serves ranks"},
                    services_.time->now());
  }
  services_.serving(asked.of, report.ranks.size());
  send(std::move(report));
}

void host_link::disconnected(const error& why) {
  const std::lock_guard lock{mutex_};
  admitted_.session = 0; // keep the gate connections: this service may join again
  if (std::exchange(serves_, epoch{}) != epoch{})
    service_->close({.code = errc::communicator_failed, .text = "the controller is lost: " + why.text},
                    services_.time->now());
}

bool host_link::beat() {
  bool is_silent = false;
  {
    const std::lock_guard lock{mutex_};
    const running_time now = running_now();
    if (admitted_.session == 0) return false;
    is_silent = silence_.exceeds(admitted_.suspicion, now);
    if (now - spoke_ >= admitted_.heartbeat) send(heartbeat{});
  }
  if (is_silent)
    disconnected({.code = errc::communicator_failed, .text = "it has been silent for longer than the suspicion time"});
  return is_silent;
}

std::optional<error> host_link::ended() const {
  const std::lock_guard lock{mutex_};
  return ended_;
}

void host_link::send(process_message what) {
  spoke_ = running_now();
  services_.send(encode(process_frame{admitted_.session, std::move(what)}));
}

} // namespace troupe
