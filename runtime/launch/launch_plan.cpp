#include <troupe/actors/transport/preamble.hpp>
#include <troupe/runtime/launch/launch_plan.hpp>
#include <troupe/runtime/launch/pipe.hpp>
#include <troupe/runtime/launch/program_path.hpp>

#include <troupe/device/error.hpp>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace troupe::launch {

namespace {

/// Returns a TCP port that is free now. Another process may take it before its user starts.
std::uint16_t free_port() {
  const file_descriptor probe{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (!probe || ::bind(probe.native(), generic, size) != 0 || ::getsockname(probe.native(), generic, &size) != 0)
    throw_system_error("bind", "no free port for MASTER_PORT could be found: name one with --master-port");
  return ntohs(address.sin_port);
}

/// Returns the number of places of each host, without hosts that have none.
std::vector<launch_host> used_hosts(const std::vector<launch_host>& hosts, std::size_t processes) {
  std::vector<launch_host> used;
  for (std::size_t left = processes; const launch_host& host : hosts) {
    const std::size_t here = std::min(left, host.processes);
    if (here > 0) used.push_back({host.name, here});
    left -= here;
  }
  return used;
}

std::size_t chosen_count(const launch_request& request) {
  std::size_t room = 0;
  for (const launch_host& host : request.hosts) room += host.processes;
  if (!request.processes && request.hosts.empty())
    throw exception{errc::invalid_argument, "how many processes? Give -n, or hosts with their numbers"};
  const std::size_t processes = request.processes.value_or(room);
  if (processes < 1) throw exception{errc::invalid_argument, "-n is 0 and must be at least 1"};
  if (!request.hosts.empty() && processes > room)
    throw exception{errc::invalid_argument, "-n is " + std::to_string(processes) + ", but the hosts take " +
                                                std::to_string(room) + ": allow more with HOST:COUNT"};
  return processes;
}

std::vector<variable_change> variables_to_export(const std::vector<std::string>& all, const launch_request& request) {
  std::vector<variable_change> chosen;
  for (const std::string& one : all) {
    const std::size_t sign = one.find('=');
    if (sign == std::string::npos) continue;
    const std::string name = one.substr(0, sign);
    if (name.starts_with("TROUPE_") || name.starts_with("NCCL_") || std::ranges::count(request.exported, name) > 0)
      chosen.push_back({name, one.substr(sign + 1)});
  }
  for (const std::string& name : request.exported)
    if (std::ranges::none_of(chosen, [&](const variable_change& one) { return one.name == name; }))
      throw exception{errc::invalid_argument, "the variable " + name + " cannot be exported: it is not set here"};
  return chosen;
}

std::string in_brackets(const std::string& host) {
  return host.find(':') != std::string::npos ? "[" + host + "]" : host;
}

} // namespace

process_spec launch_plan::spec_of(const launch_place& place) const {
  process_spec spec{.program = request.program, .arguments = request.arguments, .prefix = prefix_of(place)};
  if (elsewhere) {
    spec.environment = exported;
    spec.directory = std::filesystem::current_path().string();
  }
  const auto set = [&](const char* name, std::optional<std::string> value) {
    std::erase_if(spec.environment, [&](const variable_change& one) { return one.name == name; });
    spec.environment.push_back({name, std::move(value)});
  };
  using text = std::optional<std::string>;
  for (const variable_change& one : shared) set(one.name.c_str(), one.value);
  set("TROUPE_JOIN_TOKEN", token);
  set("TROUPE_CONTROL", request.control_host.empty() || request.control_port == 0
                            ? text{}
                            : in_brackets(request.control_host) + ":" + std::to_string(request.control_port));
  set("TROUPE_PROCESS", place.name);
  set("TROUPE_HOST", elsewhere ? text{hosts[place.host].name} : text{});
  set("TROUPE_PLACE", std::to_string(place.number));
  set("TROUPE_SPARE", place.spare ? text{"1"} : text{});
  // Loads kernels while the spare waits, not when it is needed.
  if (place.spare) set("CUDA_MODULE_LOADING", "EAGER");
  set("TROUPE_DEVICE", std::to_string(place.local));
  // A spare has no rank until it takes one.
  set("RANK", place.spare ? text{} : std::to_string(place.number));
  set("WORLD_SIZE", place.spare ? text{} : std::to_string(processes));
  set("LOCAL_RANK", place.spare ? text{} : std::to_string(place.local));
  set("LOCAL_WORLD_SIZE", std::to_string(hosts[place.host].processes));
  set("NODE_RANK", std::to_string(place.host));
  set("GROUP_RANK", std::to_string(place.host));
  set("MASTER_ADDR", master_host);
  set("MASTER_PORT", std::to_string(master_port));
  return spec;
}

std::string launch_plan::describe(const launch_place& place) const {
  return (place.spare ? "spare " : "process ") + place.name + (elsewhere ? " on " + hosts[place.host].name : "");
}

std::string launch_plan::prefix_of(const launch_place& place) const {
  return request.prefixed ? "[" + place.name + "] " : "";
}

launch_plan make_launch_plan(launch_request request, const std::vector<std::string>& all_variables) {
  launch_plan plan;
  plan.elsewhere = !request.hosts.empty();
  plan.processes = chosen_count(request);
  if (plan.elsewhere) {
    plan.hosts = used_hosts(request.hosts, plan.processes);
    plan.master_host = plan.hosts.front().name.substr(plan.hosts.front().name.find('@') + 1);
    plan.exported = variables_to_export(all_variables, request);
  } else {
    static_cast<void>(find_program(request.program));
    plan.hosts = {{"localhost", plan.processes}};
    plan.master_host = "127.0.0.1";
  }
  for (std::size_t host = 0; host < plan.hosts.size(); ++host)
    for (std::size_t local = 0; local < plan.hosts[host].processes; ++local) {
      const std::size_t number = plan.places.size();
      plan.places.push_back({.name = std::to_string(number), .number = number, .host = host, .local = local});
    }
  for (std::size_t i = 0; i < request.spares; ++i) {
    launch_place spare = plan.places[i % plan.processes];
    spare.name = "s" + std::to_string(i);
    spare.spare = true;
    plan.places.push_back(std::move(spare));
  }
  plan.token = make_join_token();
  plan.master_port = request.master_port != 0 ? request.master_port : free_port();
  plan.request = std::move(request);
  return plan;
}

std::vector<std::string> own_variables() {
  std::vector<std::string> all;
  for (char** one = environ; *one != nullptr; ++one) all.emplace_back(*one);
  return all;
}

} // namespace troupe::launch
