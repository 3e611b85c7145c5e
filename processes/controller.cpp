#include <troupe/processes/controller.hpp>

#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/process_mark.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/processes/control/control_server.hpp>
#include <troupe/processes/meeting/meeting_service.hpp>
#include <troupe/processes/transport/transport.hpp>
#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/logging.hpp>

#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

namespace {

controller_options checked(controller_options options) {
  const auto require = [](bool holds, const std::string& text) {
    if (!holds) throw exception{errc::invalid_argument, text};
  };
  const controller_terms& terms = options.terms;
  require(terms.world_size > 0, "a world needs at least one process");
  const int smallest = terms.recovery.smallest;
  require(smallest > 0 && smallest <= terms.world_size, "the minimum number of ranks is " + std::to_string(smallest) +
                                                            " and must be from 1 to " +
                                                            std::to_string(terms.world_size));
  require(terms.heartbeat > nanoseconds{0} && terms.suspicion >= 2 * terms.heartbeat,
          "controller_terms::suspicion is shorter than two heartbeats: make it longer");
  const nanoseconds lease = lease_length(terms);
  require(terms.lease >= nanoseconds{0} && lease > terms.heartbeat && lease + lease_bound(lease) <= terms.suspicion,
          "controller_terms::lease is " + std::to_string(lease.count()) +
              " ns, and must be longer than a heartbeat and, with one per cent more, at most as long as "
              "controller_terms::suspicion (" +
              std::to_string(terms.suspicion.count()) + " ns)");
  require(options.certificates || control_address{options.host, options.port}.is_loopback(),
          "the controller would listen at " + options.host +
              ", which other machines can reach, without certificates: create them with troupe certs and name them, or "
              "use 127.0.0.1");
  return options;
}

wait_profile wait_of_order(const controller_options& options) {
  const auto processes = static_cast<std::size_t>(options.terms.world_size); // each has at least one thread that spins
  return options.wait.value_or(
      choose_wait(latency_profile::balanced, processes + 1, std::thread::hardware_concurrency()).wait);
}

/// Opens the gate. Returns null if that is not possible: the processes' requests then go through their control
/// connections.
std::shared_ptr<order_gate> open_gate(std::uint16_t port) {
  try {
    return std::make_shared<order_gate>(port);
  } catch (const exception& failure) {
    log_warning("requests do not go through shared memory: " + to_string(failure.why()));
    return nullptr;
  }
}

/// Serves the meetings of this node's ranks. Returns null if that is not possible: they then have no one-shot kernels.
std::unique_ptr<meeting_service> open_meetings(std::uint16_t port) {
  try {
    return std::make_unique<meeting_service>(meeting_address(port));
  } catch (const exception& failure) {
    log_warning("worlds over processes have no one-shot kernels: " + to_string(failure.why()));
    return nullptr;
  }
}

} // namespace

/// A thread that handles frames, ticks and calls one at a time, in the order of their arrival.
struct controller::parts {
  parts(controller_options wanted, hooks reports) : options{checked(std::move(wanted))} {
    controller_hooks inner{.send = [this](peer_id to, std::string bytes) { transport->send(to, std::move(bytes)); },
                           .heard =
                               [told = std::move(reports.heard)](const control_event& event) {
                                 log_info(describe(event));
                                 if (told) told(event);
                               },
                           .straggling = [](const absence_report& late) { log_warning(describe(late)); },
                           .refused = [](const error& why) { log_warning(to_string(why)); },
                           .without_rings = [](const error& why) { log_warning(to_string(why)); },
                           .kill = std::move(reports.kill),
                           .host_joined =
                               [](const process_identity& who) {
                                 log_info("the order service of host " + who.host + " has joined: " + describe(who));
                               },
                           .joined = std::move(reports.joined),
                           .wanted = std::move(reports.wanted),
                           .ended =
                               [this](const error& why) {
                                 const std::lock_guard lock{guard};
                                 if (!ended) ended = why;
                                 changed.notify_all();
                               }};
    transport_credentials credentials = options.certificates.value_or(transport_credentials{});
    credentials.token = options.terms.token;
    // Ranks, spares, replacements whose predecessor's connection has not ended yet, drivers and order services.
    transport_limits limits;
    limits.connections += 3 * options.terms.world_size;
    transport = std::make_unique<transport_listener>(transport_listener_options{
        .mode = options.certificates ? transport_mode::mutual_tls : transport_mode::plain,
        .address = options.host,
        .port = options.port,
        .version = TROUPE_VERSION,
        .credentials = std::move(credentials),
        .limits = limits,
        .on_message =
            [this](peer_id from, std::string bytes) {
              post([this, from, bytes = std::move(bytes)] { server->hear(from, bytes); });
            },
        .on_lost =
            [this](peer_id which, const transport_fault& why) {
              post([this, which, how = why.is_by_peer ? session_end::closed : session_end::broken] {
                server->lose(which, how);
              });
            },
        .on_event =
            [](const transport_event& event) {
              const bool is_usual =
                  event.kind == transport_event_kind::admitted || event.kind == transport_event_kind::ended;
              const std::string text = event.peer.empty() ? event.text : event.peer + " " + event.text;
              is_usual ? log_info(text) : log_warning(text);
            }});
    server = std::make_unique<control_server>(
        options.terms,
        order_service_settings{.limits = options.sequencing,
                               .wait = wait_of_order(options),
                               .on_news = [this] { post([this] { server->hear_of_order(); }); }},
        open_gate(transport->port()), std::move(inner));
    meetings = open_meetings(transport->port());
    thread = worker{[this] { run(); }};
  }

  ~parts() {
    transport->stop();
    {
      const std::lock_guard lock{guard};
      is_ending = true;
    }
    changed.notify_all();
    thread.join();
  }

  void post(std::function<void()> turn) {
    {
      const std::lock_guard lock{guard};
      if (has_failed) return;
      turns.push_back(std::move(turn));
    }
    changed.notify_all();
  }

  void change(rank_change asked, std::shared_ptr<value_promise<world_processes>> reply) {
    post([this, asked = std::move(asked), reply = std::move(reply)] {
      server->change(asked, std::nullopt, [this, reply](const error& why) {
        why ? reply->deliver(why) : reply->deliver(server->state().processes());
      });
    });
  }

  void run() noexcept {
    name_this_thread("troupe/members");
    try {
      server->run_order();
      serve();
      server->end_order();
    } catch (...) {
      {
        const std::lock_guard lock{guard};
        has_failed = true;
      }
      server->end_order();
      server->fail(
          {.code = errc::world_failed,
           .text = "the controller has ended with an internal error: start the job again: " + current_error().text});
    }
  }

  /// Handles all arrived messages before each tick, so that a peer whose messages have arrived does not count as
  /// silent.
  void serve() {
    time_point due = later(steady_now(), control_server::tick_interval);
    std::unique_lock lock{guard};
    while (!is_ending || !turns.empty()) {
      changed.wait_until(lock, due, [this] { return is_ending || !turns.empty(); });
      const auto arrived = std::exchange(turns, {});
      lock.unlock();
      for (const auto& turn : arrived) turn();
      if (steady_now() >= due) {
        due = later(steady_now(), control_server::tick_interval);
        server->tick();
      }
      lock.lock();
    }
  }

  const controller_options options;
  std::mutex guard; ///< Protects the next four members.
  std::vector<std::function<void()>> turns;
  bool is_ending = false;
  bool has_failed = false;
  std::optional<error> ended;
  condition changed;
  const process_mark made;
  std::unique_ptr<transport_listener> transport; ///< Outlives the server, which sends through it.
  std::unique_ptr<control_server> server;        ///< Used by the thread below, once that runs.
  std::unique_ptr<meeting_service> meetings;     ///< Null if it cannot listen.
  worker thread;
};

controller::controller(controller_options options) : controller{std::move(options), hooks{}} {}

controller::controller(controller_options options, hooks reports)
  : parts_{std::make_unique<parts>(std::move(options), std::move(reports))} {}

controller::~controller() {
  // A fork has neither the threads nor the ranks: nothing of this process is ended there.
  if (parts_->made.is_inherited()) static_cast<void>(parts_.release());
}

std::string controller::address() const {
  return to_string(control_address{parts_->options.host, parts_->transport->port()});
}

void controller::process_ended(std::string name, std::int64_t pid, std::string how) {
  parts_->post([server = parts_->server.get(), name = std::move(name), pid, how = std::move(how)] {
    server->process_ended(name, pid, how);
  });
}

void controller::stop() {
  parts_->post([server = parts_->server.get()] { server->stop(); });
}

std::future<void> controller::leave(int place, bool renumbers) {
  const auto done = std::make_shared<std::promise<void>>();
  parts_->change({.kind = rank_change_kind::leave, .place = place, .renumbers = renumbers},
                 std::make_shared<value_promise<world_processes>>([done](std::variant<world_processes, error> result) {
                   if (error* const why = std::get_if<error>(&result))
                     done->set_exception(std::make_exception_ptr(exception{std::move(*why)}));
                   else
                     done->set_value();
                 }));
  return done->get_future();
}

std::future<world_processes> controller::change(rank_change asked) {
  auto [reply, future] = make_value_promise<world_processes>();
  parts_->change(std::move(asked), std::move(reply));
  return std::move(future);
}

bool controller::wait(nanoseconds at_most) {
  std::unique_lock lock{parts_->guard};
  return parts_->changed.wait_for(lock, at_most, [this] { return parts_->ended.has_value(); });
}

error controller::reason() const {
  const std::lock_guard lock{parts_->guard};
  return parts_->ended.value_or(error{});
}

} // namespace troupe
