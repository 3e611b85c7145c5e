#include <troupe/runtime/order_host.hpp>

#include <troupe/actors/control/host_link.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/logging.hpp>
#include <troupe/runtime/membership.hpp>
#include <troupe/runtime/recording/flight_record.hpp>

#include <unistd.h>

#include <chrono>
#include <mutex>
#include <utility>

namespace troupe {

namespace {

constexpr std::chrono::milliseconds look_every{20};

order_gate open_gate_of(const control_settings& settings) {
  try {
    return order_gate{parse_control_address(settings.address).port};
  } catch (const exception& failure) {
    error why = failure.why();
    why.text += ": if the controller or another order service for it runs on this host, none is needed here";
    throw exception{std::move(why)};
  }
}

} // namespace

struct order_host::parts {
  parts(const control_settings& wanted, std::string token, const wait_profile& wait,
        std::function<void(epoch of, std::size_t ranks)> serving)
    : settings{wanted},
      dialer{make_control_dialer(settings, token)},
      gate{open_gate_of(settings)},
      service{std::make_shared<order_service>(order_service_settings{.wait = wait})} {
    const std::string host = host_name();
    link = std::make_shared<host_link>(
        process_identity{.name = host + ":" + std::to_string(::getpid()), .host = host, .pid = ::getpid()},
        std::move(token),
        host_services{.time = std::make_shared<monotonic_clock>(),
                      .send = [this](std::string bytes) { dialer->send(std::move(bytes)); },
                      .claim =
                          [this](const ring_session& nonce) {
                            const std::lock_guard lock{gate_guard};
                            return gate.claim(nonce, steady_now());
                          },
                      .serving =
                          [told = std::move(serving)](epoch of, std::size_t ranks) {
                            log_info("epoch " + to_string(of) + ": the requests of " + std::to_string(ranks) +
                                     " ranks of this host are ordered here");
                            if (told) told(of, ranks);
                          },
                      .warned = [](const error& why) { log_warning(to_string(why)); }},
        service);
    ordering = worker{[of = service] {
      name_this_thread("troupe/order");
      of->run();
    }};
    watching = worker{[this] {
      name_this_thread("troupe/host");
      watch();
    }};
  }

  ~parts() {
    {
      const std::lock_guard lock{guard};
      is_stopped = true;
    }
    changed.notify_all();
    watching.join();
    dialer->stop();
    service->stop();
    ordering.join();
  }

  /// Connects, and again if the connection is lost.
  void watch() {
    time_point reached = steady_now();
    std::unique_lock lock{guard};
    while (!is_stopped && !ended) {
      if (!is_connecting && !is_connected) {
        is_connecting = true;
        lock.unlock();
        connect();
        lock.lock();
      }
      changed.wait_for(lock, look_every, [this] { return is_stopped; });
      const time_point now = steady_now();
      if (is_connected) reached = now;
      if (now - reached > settings.patience) ended = lost;
      lock.unlock();
      {
        const std::lock_guard gate_lock{gate_guard};
        gate.drain(now);
      }
      link->beat();
      auto why = link->ended();
      lock.lock();
      if (why && !ended) ended = std::move(why);
    }
    changed.notify_all();
  }

  void connect() {
    dialer->connect({.on_admitted =
                         [this] {
                           dialer->send(link->introduction());
                           const std::lock_guard lock{guard};
                           is_connected = true;
                           is_connecting = false;
                         },
                     .on_message = [this](const std::string& bytes) { link->receive(bytes); },
                     .on_lost =
                         [this](const transport_fault& why) {
                           const error failure{.code = errc::missing, .text = why.text};
                           link->disconnected(failure);
                           const std::lock_guard lock{guard};
                           is_connected = is_connecting = false;
                           lost = failure;
                           const bool is_refused = why.kind == transport_event_kind::bad_token ||
                                                   why.kind == transport_event_kind::bad_certificate ||
                                                   why.kind == transport_event_kind::other_version;
                           if (is_refused) ended = failure;
                         }});
  }

  const control_settings settings;
  std::shared_ptr<transport_dialer> dialer;
  std::mutex gate_guard;
  order_gate gate;
  std::shared_ptr<order_service> service;
  std::shared_ptr<host_link> link;

  std::mutex guard;
  condition changed;
  bool is_stopped = false;
  bool is_connecting = false;
  bool is_connected = false;
  error lost{};
  std::optional<error> ended;

  worker ordering;
  worker watching;
};

order_host::order_host(const control_settings& settings, std::string token, const wait_profile& wait,
                       std::function<void(epoch of, std::size_t ranks)> serving)
  : parts_{std::make_unique<parts>(settings, std::move(token), wait, std::move(serving))} {}

order_host::~order_host() = default;

std::optional<error> order_host::wait(nanoseconds at_most) {
  std::unique_lock lock{parts_->guard};
  static_cast<void>(parts_->changed.wait_for(lock, at_most, [this] { return parts_->ended.has_value(); }));
  return parts_->ended;
}

} // namespace troupe
