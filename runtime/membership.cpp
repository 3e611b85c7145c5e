#include <troupe/runtime/membership.hpp>

#include <troupe/actors/control/caf_remote.hpp>
#include <troupe/actors/control/control_notes.hpp>
#include <troupe/runtime/logging.hpp>
#include <troupe/runtime/settings.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

namespace troupe {

namespace {

/// Between being told that it is out of its world and the process's end: for clients to hear of it.
constexpr std::chrono::milliseconds grace_of_outcasts{500};
constexpr std::chrono::seconds time_for_farewells{1};
constexpr int status_of_outcasts = 75; ///< EX_TEMPFAIL: another start may help.

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

/// Settings that ranks must have alike, or they launch different things.
constexpr std::array shared_settings{std::string_view{"ordering"},
                                     std::string_view{"host_staging.chunk_bytes"},
                                     std::string_view{"host_staging.slots"},
                                     std::string_view{"hierarchy.mode"},
                                     std::string_view{"hierarchy.nodes"},
                                     std::string_view{"hierarchy.across"},
                                     std::string_view{"hierarchy.min_bytes"},
                                     std::string_view{"hierarchy.scratch_bytes"}};

/// "NCCL 2.28.9 from /usr/lib/libnccl.so.2" may lie elsewhere on another host, and "Gloo 0.5.0 over TCP at 10.0.0.1"
/// does.
std::string without_origin(std::string version) {
  for (const char* const where : {" from ", " at "})
    if (const auto found = version.find(where); found != std::string::npos) version.resize(found);
  return version;
}

/// The controller; behind a guard the dialer knows better why there is none.
caf::actor find(caf::actor_system& system, std::uint16_t port, const guard_dialer* dialer) {
  try {
    return compat::find_on_loopback(system, port);
  } catch (const exception&) {
    const std::string why = dialer != nullptr ? dialer->last_error() : std::string{};
    if (why.empty()) throw;
    throw exception{errc::missing, why};
  }
}

void leave_soon(const error& why) {
  log_warning("this process ends in " + std::to_string(grace_of_outcasts.count()) +
              " ms, so that another can take its place: " + to_string(why));
  std::thread{[] {
    std::this_thread::sleep_for(grace_of_outcasts);
    std::_Exit(status_of_outcasts);
  }}.detach();
}

} // namespace

join_request describe_process(const configuration& settings, driver& api, const backend& collectives, device_id where) {
  const std::string gpu = api.describe(where).pci_bus_id;
  join_request made{.who = {.name = settings.seat.name,
                            .host = settings.seat.host.empty() ? host_name() : settings.seat.host,
                            .pid = ::getpid(),
                            .gpu = gpu.starts_with("mock:") ? std::string{} : gpu},
                    .place = settings.seat.place,
                    .spare = settings.seat.spare,
                    .attempt = settings.seat.attempt,
                    .local_device = where.value(),
                    .device_count = api.device_count()};
  made.token = settings.seat.token;
  if (made.who.name.empty()) made.who.name = made.who.host + ":" + std::to_string(made.who.pid);
  if (!made.place && !made.spare && settings.position && settings.position->world_size > 1)
    made.place = settings.position->rank;
  made.facts = {{"troupe", TROUPE_VERSION},
                {"backend", std::string{collectives.name()}},
                {"version of the backend", without_origin(collectives.version())},
                {"driver", api.version()}};
  for (const std::string_view name : shared_settings)
    made.facts.push_back({std::string{name}, find_setting(name).text(settings)});
  return made;
}

/// The world that hears what the controller says, once there is one.
struct membership::listener {
  std::mutex guard;
  world_inner_handle to;

  void hear(guidance what) {
    const std::lock_guard lock{guard};
    if (to) compat::post(to, std::move(what));
  }
};

membership::membership(join_request who, const configuration& settings, std::shared_ptr<helper_crew> helpers,
                       const selected_backend& selected, std::shared_ptr<const clock> time)
  : settings_{settings.control},
    claim_{who.who.gpu.empty() ? device_claim{}
                               : device_claim{device_claims_folder(), who.who.gpu, settings.control.address,
                                              describe(who.who) + " of the controller at " + settings.control.address}},
    helpers_{std::move(helpers)},
    world_{std::make_shared<listener>()},
    token_{settings.seat.token},
    port_{port_to_dial()} {
  const auto deadline = settings.deadlines.form;
  link_services services{
      .time = std::move(time),
      .send = [outlet = outlet_](std::string bytes) { outlet->send(std::move(bytes)); },
      .deliver =
          [world = world_, nodes = selected.nodes](guidance what) {
            const auto* const order = std::get_if<formation_order>(&what.what);
            if (nodes && order != nullptr && !order->hosts.empty())
              nodes->note(order->id, node_map::of_hosts(order->hosts));
            world->hear(std::move(what));
          },
      .make_id =
          [crew = helpers_, collectives = selected.collectives, deadline](std::function<void(unique_id)> take) {
            crew->run(
                "the naming of an epoch", deadline, [collectives, take] { take(collectives->make_unique_id()); },
                [](const error& failure) {
                  if (failure) log_warning("no epoch could be named: " + to_string(failure));
                });
          },
      .abandoned =
          [is_watched = settings.seat.is_watched](const error& why) {
            if (is_watched) leave_soon(why);
          }};
  link_ = std::make_shared<process_link>(std::move(who), std::move(services), settings_.orphaned, settings_.patience);
}

void membership::begin(caf::actor_system& system, world_inner_handle whom) {
  {
    const std::lock_guard lock{world_->guard};
    world_->to = std::move(whom);
  }
  self_ = system.spawn<process_actor>(
      link_, outlet_, [&system, port = port_, dialer = dialer_] { return find(system, port, dialer.get()); }, helpers_);
}

std::uint16_t membership::port_to_dial() {
  const control_address where = parse_control_address(settings_.address);
  if (!settings_.has_certificates()) {
    if (where.is_loopback()) return where.port;
    throw exception{errc::invalid_argument,
                    "the controller at " + settings_.address +
                        " is beyond this machine, which needs certificates: set control.ca, control.certificate and "
                        "control.key (troupe certs makes some)"};
  }
  dialer_ =
      std::make_shared<guard_dialer>(guard_dialer_options{.mode = guard_mode::mutual_tls,
                                                          .host = where.host,
                                                          .port = where.port,
                                                          .credentials = {.ca_file = settings_.ca,
                                                                          .certificate_file = settings_.certificate,
                                                                          .key_file = settings_.key,
                                                                          .token = token_}});
  return dialer_->port();
}

void membership::end() {
  link_->await_farewell(time_for_farewells);
  if (self_) compat::post(self_, process_note{stop_control{}});
  self_ = process_inner_handle{};
  const std::lock_guard lock{world_->guard};
  world_->to = world_inner_handle{};
}

} // namespace troupe
