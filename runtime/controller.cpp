#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/runtime/controller.hpp>

#include <troupe/actors/caf/caf_host.hpp>
#include <troupe/actors/caf/message_types.hpp>
#include <troupe/actors/control/control_notes.hpp>
#include <troupe/actors/control/controller_actor.hpp>
#include <troupe/collectives/transport/transport.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/logging.hpp>

#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t controller_workers = 2;

controller_options checked(controller_options options) {
  const auto require = [](bool holds, const std::string& text) {
    if (!holds) throw exception{errc::invalid_argument, text};
  };
  const controller_terms& terms = options.terms;
  require(terms.world_size > 0, "a world needs at least one process");
  require(terms.smallest > 0 && terms.smallest <= terms.world_size,
          "the minimum number of ranks is " + std::to_string(terms.smallest) + " and must be from 1 to " +
              std::to_string(terms.world_size));
  require(terms.heartbeat > nanoseconds{0} && terms.suspicion >= 2 * terms.heartbeat,
          "controller_terms::suspicion is shorter than two heartbeats: make it longer");
  require(options.certificates || control_address{options.host, options.port}.is_loopback(),
          "the controller would listen at " + options.host +
              ", which other machines can reach, without certificates: create them with troupe certs and name them, or "
              "use 127.0.0.1");
  return options;
}

std::unique_ptr<caf::actor_system_config> make_controller_settings() {
  register_message_types();
  auto made = std::make_unique<caf::actor_system_config>();
  compat::set_worker_count(*made, controller_workers);
  return made;
}

wait_profile wait_of_order(const controller_options& options) {
  const auto processes = static_cast<std::size_t>(options.terms.world_size); // each has a thread that spins, or more
  return options.wait.value_or(
      choose_wait(latency_profile::balanced, processes + 1, std::thread::hardware_concurrency()).wait);
}

/// Returns null if there can be none: the processes' requests then go through their control connections.
std::shared_ptr<order_gate> open_gate(std::uint16_t port) {
  try {
    return std::make_shared<order_gate>(port);
  } catch (const exception& failure) {
    log_warning("requests do not go through shared memory: " + to_string(failure.why()));
    return nullptr;
  }
}

} // namespace

struct controller::parts {
  parts(controller_options wanted, hooks reports)
    : options{checked(std::move(wanted))},
      settings{make_controller_settings()},
      system{compat::make_actor_system(*settings)} {
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
                                 const std::lock_guard lock{ended_guard};
                                 if (!ended) ended = why;
                                 changed.notify_all();
                               }};
    transport_credentials credentials = options.certificates.value_or(transport_credentials{});
    credentials.token = options.terms.token;
    // The listener is made before the actor: if it throws, there is no actor that the actor system would wait for.
    const std::lock_guard lock{self_guard}; // a message that arrives meanwhile waits for the actor
    transport = std::make_unique<transport_listener>(transport_listener_options{
        .mode = options.certificates ? transport_mode::mutual_tls : transport_mode::plain,
        .address = options.host,
        .port = options.port,
        .version = TROUPE_VERSION,
        .credentials = std::move(credentials),
        .on_message =
            [this](peer_id from, std::string bytes) {
              post({peer_message{from, std::move(bytes)}});
            },
        .on_lost = [this](peer_id which, const transport_fault&) { post({peer_lost{which}}); },
        .on_event =
            [](const transport_event& event) {
              const bool is_usual =
                  event.kind == transport_event_kind::admitted || event.kind == transport_event_kind::ended;
              const std::string text = event.peer.empty() ? event.text : event.peer + " " + event.text;
              is_usual ? log_info(text) : log_warning(text);
            }});
    self = system->spawn<controller_actor>(options.terms, options.sequencing, wait_of_order(options),
                                           open_gate(transport->port()), std::move(inner));
  }

  ~parts() {
    transport->stop();
    compat::post(self, controller_note{quit_control{}});
    self = controller_inner_handle{};
  }

  void post(controller_note note) {
    const std::lock_guard lock{self_guard};
    compat::post(self, std::move(note));
  }

  controller_options options;
  std::mutex ended_guard;
  condition changed;
  std::optional<error> ended;
  std::unique_ptr<transport_listener> transport; ///< Outlives the actor, which sends through it.
  std::unique_ptr<caf::actor_system_config> settings;
  std::unique_ptr<caf::actor_system> system;
  std::mutex self_guard; ///< Needed because the transport listens before the actor exists.
  controller_inner_handle self;
};

controller::controller(controller_options options) : controller{std::move(options), hooks{}} {}

controller::controller(controller_options options, hooks reports)
  : parts_{std::make_unique<parts>(std::move(options), std::move(reports))} {}

controller::~controller() = default;

std::string controller::address() const {
  return to_string(control_address{parts_->options.host, parts_->transport->port()});
}

void controller::process_ended(std::string name, std::int64_t pid, std::string how) {
  compat::post(parts_->self, controller_note{process_end{std::move(name), pid, std::move(how)}});
}

void controller::stop() {
  compat::post(parts_->self, controller_note{stop_control{}});
}

bool controller::wait(nanoseconds at_most) {
  std::unique_lock lock{parts_->ended_guard};
  return parts_->changed.wait_for(lock, at_most, [this] { return parts_->ended.has_value(); });
}

error controller::reason() const {
  const std::lock_guard lock{parts_->ended_guard};
  return parts_->ended.value_or(error{});
}

} // namespace troupe
