#include <troupe/processes/membership/controlled_membership.hpp>

#include <troupe/runtime/configuration/settings.hpp>
#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/logging.hpp>
#include <troupe/runtime/packages.hpp>
#include <troupe/runtime/recording/flight_record.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <utility>

namespace troupe {

namespace {

/// Delay between the notice that this process was removed from its world and its exit, so that clients receive the
/// notice.
constexpr std::chrono::milliseconds exit_delay_when_removed{500};
/// Limit for the controller's answer to a leave_notice. Closing the connection earlier can destroy the notice, if
/// messages of the controller are unread; the controller would then take the process for lost, and the launcher would
/// kill it.
constexpr std::chrono::seconds leave_confirmation_limit{5};
constexpr int exit_status_when_removed = 75; ///< EX_TEMPFAIL: another start may help.

constexpr std::array settings_of_all_processes{std::string_view{"ordering"},
                                               std::string_view{"fusion"},
                                               std::string_view{"fusion_max_operations"},
                                               std::string_view{"fusion_max_bytes"},
                                               std::string_view{"fusion_max_operation_bytes"},
                                               std::string_view{"one_shot_bytes"},
                                               std::string_view{"host_staging.chunk_bytes"},
                                               std::string_view{"host_staging.slots"},
                                               std::string_view{"hierarchy.mode"},
                                               std::string_view{"hierarchy.nodes"},
                                               std::string_view{"hierarchy.across"},
                                               std::string_view{"hierarchy.min_bytes"},
                                               std::string_view{"hierarchy.scratch_bytes"}};

/// Variables of NCCL with which ranks would choose different algorithms or transports. Others concern one host or
/// process: logs, interfaces, adapters, plugins.
constexpr std::array nccl_variables_of_all_processes{
    "NCCL_ALGO",        "NCCL_PROTO",        "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",   "NCCL_SHM_DISABLE",  "NCCL_IB_DISABLE",
    "NCCL_NVLS_ENABLE", "NCCL_CUMEM_ENABLE", "NCCL_SINGLE_PROC_MEM_REG_ENABLE"};

/// Removes the location from a version: "NCCL 2.28.9 from /usr/lib/libnccl.so.2" may have another path on another host,
/// and "Gloo 0.5.0 over TCP at 10.0.0.1" has another address.
std::string without_origin(std::string version) {
  for (const char* const where : {" from ", " at "})
    if (const auto found = version.find(where); found != std::string::npos) version.resize(found);
  return version;
}

/// Returns whether a communicator of \p backend may form beside one that is in use. NCCL's does so beside operations
/// that hang (docs/design/0033-spare-streams.md), which is more. It launches no collective before it has formed, and a
/// world uses it only when all ranks have finished what the former one had launched: so the GPUs never have operations
/// of both, and need no order of launches between the two (docs/design/0117-planned-change.md).
bool forms_beside_work(std::string_view backend) {
  return backend == "mock" || backend == "gloo" || backend == "nccl";
}

void leave_soon(const error& why) {
  log_warning("this process ends in " + std::to_string(exit_delay_when_removed.count()) +
              " ms, so that another can take its place: " + to_string(why));
  std::thread{[] {
    std::this_thread::sleep_for(exit_delay_when_removed);
    std::_Exit(exit_status_when_removed);
  }}.detach();
}

/// Returns a number that no other process has drawn. Forks have it from their parent, and process ids of their own.
std::uint64_t life_of_process() {
  static const std::uint64_t drawn = [] {
    std::random_device entropy;
    return (std::uint64_t{entropy()} << 32U) | entropy();
  }();
  return drawn;
}

/// Returns why process_session has no connection. invalid_argument means that another attempt would fail too.
error error_of(const transport_fault& why, bool admitted) {
  if (!admitted) return {.code = is_refusal(why) ? errc::invalid_argument : errc::missing, .text = why.text};
  return {.code = errc::communicator_failed,
          .text = why.kind == transport_event_kind::ended ? why.text
                                                          : "the connection to the controller has ended: " + why.text};
}

} // namespace

join_request describe_process(const configuration& settings, driver& api, const backend& collectives, device_id where) {
  join_request made{
      .who = {.name = settings.control.assignment.name,
              .host = settings.control.assignment.host.empty() ? host_name() : settings.control.assignment.host,
              .pid = ::getpid(),
              .gpu = name_to_claim(api, where),
              .life = life_of_process()},
      .place = settings.control.assignment.place,
      .spare = settings.control.assignment.spare,
      .attempt = settings.control.assignment.attempt,
      .local_device = where.value(),
      .device_count = api.device_count()};
  made.token = settings.control.assignment.token;
  if (!made.place && !made.spare && settings.position && settings.position->world_size > 1) {
    made.place = settings.position->rank;
    made.world_size = settings.position->world_size;
  }
  if (made.who.name.empty()) // processes that follow each other in one place have one name
    made.who.name =
        made.place && !made.spare ? std::to_string(*made.place) : made.who.host + ":" + std::to_string(made.who.pid);
  made.facts = {{"troupe", TROUPE_VERSION},
                {"backend", std::string{collectives.name()}},
                {"version of the backend", without_origin(collectives.version())},
                {"driver", api.version()},
                {std::string{fact_of_planned_changes}, settings.control.planned_changes &&
                                                               settings.ordering == ordering::agreed &&
                                                               forms_beside_work(collectives.name())
                                                           ? "yes"
                                                           : "no"},
                // which compose operations over nodes
                {"package backends", find_backends_package() != nullptr ? "linked" : "not linked"}};
  std::ranges::move(shared_settings(settings, collectives.name()), std::back_inserter(made.facts));
  return made;
}

std::vector<shared_fact> shared_settings(const configuration& settings, std::string_view backend) {
  std::vector<shared_fact> made;
  for (const setting& one : all_settings())
    if (std::ranges::find(settings_of_all_processes, one.name) != settings_of_all_processes.end())
      made.push_back({std::string{one.name}, one.text(settings)});
  if (backend != "nccl") return made;
  configuration alike = settings;
  std::erase_if(alike.nccl.config, [](const auto& one) { return one.first == "commName"; });
  std::ranges::sort(alike.nccl.config);
  made.push_back({"nccl.config", find_setting("nccl.config").text(alike)});
  for (const char* const name : nccl_variables_of_all_processes) {
    const auto chosen = find_value(settings.nccl.environment, name);
    made.push_back({name, chosen ? *chosen : nccl_process_variables()(name).value_or("")});
  }
  return made;
}

/// Forwards the controller's messages to the world while there is one.
struct controlled_membership::listener {
  std::mutex mutex;
  world_inner_handle to;

  void hear(controller_directive what) {
    const std::lock_guard lock{mutex};
    if (to) compat::post(to, world_notice{std::move(what)});
  }
};

controlled_membership::controlled_membership(join_request who, const membership_terms& terms)
  : address_{terms.settings.control.address},
    claim_{who.who.gpu.empty()
               ? device_claim{}
               : device_claim{device_claims_folder(), who.who.gpu, terms.settings.control.address,
                              describe(who.who) + " of the controller at " + terms.settings.control.address}},
    api_{terms.selected.api},
    world_{std::make_shared<listener>()},
    // process_session decides when the process gives up
    controller_{std::make_shared<controller_connection>(terms.settings.control, terms.settings.control.assignment.token,
                                                        nanoseconds::max())} {
  const configuration& settings = terms.settings;
  const selected_backend& selected = terms.selected;
  const auto deadline = settings.deadlines.form;
  session_services session{.time = terms.time,
                           .send =
                               [weak = std::weak_ptr{controller_}](std::string bytes) {
                                 if (const auto controller = weak.lock()) controller->send(std::move(bytes));
                               },
                           .patience = settings.control.patience,
                           .ends_with_controller = settings.control.orphaned == orphan_policy::leave};
  process_services services{
      .deliver =
          [world = world_, note = selected.note_hosts, meetings = selected.meetings](controller_directive what) {
            const auto note_places = [&](const auto& directive) {
              if (meetings) meetings->note_node(directive.id, directive.is_on_one_node);
              if (note && !directive.hosts.empty()) note(directive.id, directive.hosts);
            };
            if (const auto* const formation = std::get_if<formation_directive>(&what.what)) note_places(*formation);
            if (const auto* const ahead = std::get_if<prepare_directive>(&what.what)) note_places(*ahead);
            world->hear(std::move(what));
          },
      .make_id =
          [pool = terms.helpers, collectives = selected.collectives, deadline](const auto& take) {
            pool->run(
                "the creation of a unique id", deadline,
                [collectives, take] { take({}, collectives->make_unique_id()); },
                [take](error failure) {
                  if (!failure) return;
                  failure.text = "no unique id could be created for an epoch: " + failure.text;
                  log_warning(to_string(failure));
                  take(failure, {});
                });
          },
      .abandoned =
          [is_watched = settings.control.assignment.is_watched](const error& why) {
            // A world whose work is done needs no other process in its place.
            if (is_watched && why.code != errc::stopping) leave_soon(why);
          },
      .without_rings = [](const error& why) { log_warning(to_string(why)); },
      .order_opened =
          [](epoch of, bool through_rings) {
            log_info("requests of epoch " + to_string(of) + " are ordered through " +
                     (through_rings ? "shared memory" : "the control connection"));
          },
      .stands_by = terms.stands_by,
      .fused = settings.fusion,
      .ring_wait = terms.wait,
      .enter_ring_thread = [api = selected.api] { api->enter_thread(std::nullopt); }};
  if (settings.ordering == ordering::agreed) // else there is no order to agree on
    services.knock = [port = gate_port(settings.control)] { return knock_at_gate(port); };
  session_ = std::make_shared<process_session>(std::move(session), std::move(who), std::move(services));
}

void controlled_membership::begin(world_inner_handle target) {
  {
    const std::lock_guard lock{world_->mutex};
    world_->to = std::move(target);
  }
  auto hooks = controller_connection::hooks_of(session_);
  hooks.introduction = [session = session_, api = api_] {
    api->enter_thread(std::nullopt); // this thread applies the decisions about requests
    return session->introduction();
  };
  hooks.disconnected = [session = session_](const transport_fault& why, bool admitted) {
    session->disconnected(error_of(why, admitted));
  };
  controller_->begin(std::move(hooks), "troupe/pulse");
}

std::vector<std::string> control_addresses(const control_settings& settings) {
  std::vector<std::string> made;
  std::string_view rest = settings.address;
  for (;;) {
    const auto comma = rest.find(',');
    made.emplace_back(rest.substr(0, comma));
    static_cast<void>(parse_control_address(made.back()));
    if (comma == std::string_view::npos) return made;
    rest.remove_prefix(comma + 1);
  }
}

std::uint16_t gate_port(const control_settings& settings) {
  return parse_control_address(control_addresses(settings).front()).port;
}

std::shared_ptr<transport_dialer> make_control_dialer(const control_settings& settings, std::string token) {
  const control_address where = parse_control_address(settings.address);
  const bool has_certificates = settings.has_certificates();
  if (!has_certificates && !where.is_loopback())
    throw exception{errc::invalid_argument, "the controller at " + settings.address +
                                                " is on another machine, which needs certificates: set control.ca, "
                                                "control.certificate and control.key (troupe certs makes them)"};
  if (token.empty())
    throw exception{errc::invalid_argument,
                    "TROUPE_JOIN_TOKEN is not set: give this process the token of the controller at " +
                        settings.address};
  return std::make_shared<transport_dialer>(
      transport_dialer_options{.mode = has_certificates ? transport_mode::mutual_tls : transport_mode::plain,
                               .host = where.host,
                               .port = where.port,
                               .version = TROUPE_VERSION,
                               .credentials = {.ca_file = settings.ca,
                                               .certificate_file = settings.certificate,
                                               .key_file = settings.key,
                                               .token = std::move(token)},
                               .on_event = [](const transport_event& event) {
                                 if (event.kind == transport_event_kind::warning) log_warning(event.text);
                               }});
}

std::string controlled_membership::awaited() const {
  if (session_->is_joined())
    return "the controller at " + address_ + ", which this process has joined, waits for other processes: start them";
  return controller_->obstacle().value_or("the controller at " + address_ + " has not answered");
}

void controlled_membership::end() {
  session_->await_farewell(leave_confirmation_limit);
  session_->close_rings();
  session_->end_lease();
  controller_->stop();
  world_inner_handle released; // its actor may end with it, without the lock
  const std::lock_guard lock{world_->mutex};
  std::swap(released, world_->to);
}

} // namespace troupe
