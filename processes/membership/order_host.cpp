#include <troupe/processes/membership/order_host.hpp>

#include <troupe/device/threads/worker.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/processes/control/host_session.hpp>
#include <troupe/processes/meeting/meeting_service.hpp>
#include <troupe/processes/membership/controlled_membership.hpp>
#include <troupe/processes/membership/controller_connection.hpp>
#include <troupe/runtime/logging.hpp>
#include <troupe/runtime/recording/flight_record.hpp>

#include <unistd.h>

#include <mutex>
#include <utility>

namespace troupe {

namespace {

order_gate open_gate_of(const control_settings& settings) {
  try {
    return order_gate{gate_port(settings)};
  } catch (const exception& failure) {
    error why = failure.why();
    why.text += ": if the controller or another order service for it runs on this host, none is needed here";
    throw exception{std::move(why)};
  }
}

} // namespace

struct order_host::parts {
  parts(const control_settings& settings, std::string token, const wait_profile& wait, const sequencer_limits& limits,
        std::function<void(epoch of, std::size_t ranks)> serving)
    : gate{open_gate_of(settings)},
      meetings{meeting_address(gate_port(settings))},
      service{std::make_shared<order_service>(order_service_settings{.limits = limits, .wait = wait})},
      controller{settings, token, settings.patience} {
    const std::string host = host_name();
    session = std::make_shared<host_session>(
        session_services{.time = std::make_shared<monotonic_clock>(),
                         .send = [this](std::string bytes) { controller.send(std::move(bytes)); },
                         .patience = settings.patience},
        process_identity{.name = host + ":" + std::to_string(::getpid()), .host = host, .pid = ::getpid()},
        std::move(token),
        host_services{.claim =
                          [this](const ring_session& nonce) {
                            const std::lock_guard lock{gate_guard};
                            return gate.claim(nonce, steady_now());
                          },
                      .serving =
                          [told = std::move(serving)](epoch of, std::size_t ranks) {
                            log_info("epoch " + to_string(of) + ": the requests of " + std::to_string(ranks) +
                                     " ranks of this host are ordered here");
                            told(of, ranks);
                          },
                      .warned = [](const error& why) { log_warning(to_string(why)); }},
        service);
    ordering = worker{[of = service] {
      name_this_thread("troupe/order");
      of->run();
    }};
    auto hooks = controller_connection::hooks_of(session);
    hooks.tick = [this, tick = std::move(hooks.tick)] {
      {
        const std::lock_guard lock{gate_guard};
        gate.drain(steady_now());
      }
      return tick();
    };
    controller.begin(std::move(hooks), "troupe/host");
  }

  ~parts() {
    service->stop();
    ordering.join();
  }

  std::mutex gate_guard;
  order_gate gate;
  meeting_service meetings;
  std::shared_ptr<order_service> service;
  std::shared_ptr<host_session> session;
  worker ordering;
  controller_connection controller; ///< Destroyed first, because it calls into the other members.
};

order_host::order_host(const control_settings& settings, std::string token, const wait_profile& wait,
                       const sequencer_limits& limits, std::function<void(epoch of, std::size_t ranks)> serving)
  : parts_{std::make_unique<parts>(settings, std::move(token), wait, limits, std::move(serving))} {}

order_host::~order_host() = default;

std::optional<error> order_host::wait(nanoseconds at_most) {
  return parts_->controller.wait_ended(at_most);
}

} // namespace troupe
