#include <troupe/program/stress/standby_job.hpp>

#include <troupe/device/file_descriptor.hpp>
#include <troupe/processes/membership/controlled_membership.hpp>
#include <troupe/processes/transport/shared_memory/order_gate.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <future>
#include <utility>

namespace troupe::program {

namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds pause_before_start{50};
constexpr std::chrono::milliseconds pause_before_look{20};
constexpr std::chrono::seconds longest_wait_for_supervisor{5};
constexpr const char* loopback = "127.0.0.1";

std::string address_of(std::uint16_t port) {
  return std::string{loopback} + ":" + std::to_string(port);
}

/// Returns the command troupe, which is in the folder of this program, or in PATH.
std::string command_beside(const std::string& program) {
  const std::filesystem::path beside = std::filesystem::path{program}.parent_path() / "troupe";
  return std::filesystem::exists(beside) ? beside.string() : launch::find_program("troupe");
}

/// A controller that stands by does not listen.
bool listens(std::uint16_t port) {
  const file_descriptor probe{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in to{AF_INET, htons(port), {}, {}};
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return probe && ::connect(probe.native(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
}

} // namespace

standby_job::standby_job(launch::launch_plan plan, configuration settings, nanoseconds suspicion, std::string folder,
                         std::function<void(const world_event&)> heard)
  : plan_{std::move(plan)},
    settings_{std::move(settings)},
    heard_{std::move(heard)},
    client_port_{std::to_string(launch::free_port())},
    peer_port_{std::to_string(launch::free_port())},
    ports_{launch::free_port(), launch::free_port()},
    slots_(plan_.places.size()),
    supervisor_{{.signals = {SIGINT, SIGTERM}}} {
  plan_.control = address_of(ports_[0]) + "," + address_of(ports_[1]);
  settings_.control.address = plan_.control;
  settings_.control.assignment.token = plan_.token;
  settings_.control.orphaned = orphan_policy::rejoin;
  const std::string client = "http://" + std::string{loopback} + ":" + client_port_;
  const std::string peer = "http://" + std::string{loopback} + ":" + peer_port_;
  store_.what = {.program = launch::find_program("etcd"),
                 .arguments = {"--data-dir", folder + "/etcd", "--log-level", "fatal", "--listen-client-urls", client,
                               "--advertise-client-urls", client, "--listen-peer-urls", peer,
                               "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer}};
  const std::vector<launch::variable_change> environment{{"TROUPE_JOIN_TOKEN", plan_.token},
                                                         {"TROUPE_CONTROL", plan_.control}};
  const std::string command = command_beside(plan_.request.program);
  for (std::size_t i = 0; i < controllers_.size(); ++i)
    controllers_[i].what = {.program = command,
                            .arguments = {"controller", "--processes=" + std::to_string(plan_.places.size()),
                                          "--store=etcd://" + std::string{loopback} + ":" + client_port_ + "/world",
                                          "--port=" + std::to_string(ports_[i]), "--policy=shrink", "--rebuilds=100000",
                                          "--log=" + settings_.log_level,
                                          "--suspicion=" + std::to_string(suspicion.count()) + "ns"},
                            .environment = environment,
                            .prefix = "[controller " + std::to_string(i) + "] "};
  orders_.what = {
      .program = command, .arguments = {"order-service"}, .environment = environment, .prefix = "[order service] "};
}

standby_job::~standby_job() = default;

void standby_job::start() {
  supervisor_.post([this] {
    keep(store_);
    for (service& one : controllers_) keep(one);
    keep(orders_);
    fill_when_ordered();
  });
  supervisor_.on_signal([this](int) { ask_to_stop(); });
}

void standby_job::fill_when_ordered() {
  if (knock_at_gate(gate_port(settings_.control))) {
    for (launch::place_index place = 0; place < slots_.size(); ++place) fill(place);
  } else if (!is_stopping_) {
    supervisor_.after(pause_before_look, [this] { fill_when_ordered(); });
  }
}

void standby_job::keep(service& one) {
  if (is_over_) return;
  const auto ended = [this, &one](launch::process_number, pid_t, const launch::exit_status&) {
    one.running.reset();
    supervisor_.after(pause_before_start, [this, &one] { keep(one); });
  };
  one.running = supervisor_.start(one.what, {.on_exit = ended}).number;
}

void standby_job::fill(launch::place_index place) {
  slot& one = slots_[place];
  if (one.running || is_stopping_) return;
  launch::process_spec spec = plan_.spec_of(plan_.places[place]);
  spec.environment.push_back({"TROUPE_ATTEMPT", std::to_string(one.starts++)});
  spec.environment.push_back({"TROUPE_HOST", host_of(place, slots_.size())});
  const auto ended = [this, place](launch::process_number, pid_t, const launch::exit_status& how) {
    exited(place, how);
  };
  one.running = supervisor_.start(std::move(spec), {.on_exit = ended}).number;
}

void standby_job::exited(launch::place_index place, const launch::exit_status& how) {
  slots_[place].running.reset();
  if (is_stopping_) return end_if_empty();
  if (!how.succeeded() || std::exchange(slots_[place].is_wanted, false))
    supervisor_.after(pause_before_start, [this, place] { fill(place); });
}

void standby_job::end_if_empty() {
  const bool is_any_running = std::ranges::any_of(slots_, [](const slot& one) { return one.running.has_value(); });
  if (!is_any_running && !std::exchange(is_over_, true)) outcome_.set_value(0);
}

void standby_job::ask_to_stop() {
  is_stopping_ = true;
  end_if_empty();
  if (is_over_) return;
  // The one that decides may have been killed just now.
  for (const service& one : controllers_)
    if (one.running) supervisor_.kill(*one.running, SIGINT);
  supervisor_.after(1s, [this] { ask_to_stop(); });
}

std::future<world_processes> standby_job::change(const rank_change& asked) {
  if (asked.kind == rank_change_kind::join && asked.place)
    supervisor_.post([this, place = static_cast<launch::place_index>(*asked.place)] {
      slots_[place].is_wanted = slots_[place].running.has_value();
      fill(place);
    });
  const std::lock_guard lock{mutex_};
  if (!driver_ || driver_->status().phase == world_phase::stopped) {
    driver_ = std::make_unique<world_driver>(settings_);
    driver_->on_event(heard_);
  }
  switch (asked.kind) {
    case rank_change_kind::none: break;
    case rank_change_kind::leave: return driver_->leave(asked.place.value_or(0), asked.renumbers);
    case rank_change_kind::drain: return driver_->drain(asked.host, asked.renumbers);
    case rank_change_kind::join: return driver_->join(asked.place);
  }
  return driver_->processes();
}

void standby_job::kill(launch::place_index place, int signal) {
  supervisor_.post([this, place, signal] {
    if (slots_[place].running) supervisor_.kill(*slots_[place].running, signal);
  });
}

void standby_job::end_controller() {
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    if (!listens(ports_[i])) continue;
    const auto done = std::make_shared<std::promise<void>>();
    supervisor_.post([this, i, done] {
      if (controllers_[i].running) supervisor_.kill(*controllers_[i].running, SIGKILL);
      done->set_value();
    });
    // Without this wait, the caller's next question could still reach the controller that is about to end.
    static_cast<void>(done->get_future().wait_for(longest_wait_for_supervisor));
  }
}

void standby_job::end_store() {
  supervisor_.post([this] {
    if (store_.running) supervisor_.kill(*store_.running, SIGKILL);
  });
}

void standby_job::end_service() {
  supervisor_.post([this] {
    if (orders_.running) supervisor_.kill(*orders_.running, SIGKILL);
  });
}

void standby_job::fill_all() {
  supervisor_.post([this] {
    for (launch::place_index place = 0; place < slots_.size(); ++place) fill(place);
  });
}

void standby_job::stop() {
  supervisor_.post([this] { ask_to_stop(); });
}

} // namespace troupe::program
