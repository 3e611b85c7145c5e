#include <troupe/runtime/launch/launch_plan.hpp>

#include <troupe/collectives/transport/join_secret.hpp>
#include <troupe/device/error.hpp>
#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/launch/child_process.hpp>
#include <troupe/runtime/launch/program_path.hpp>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>

namespace troupe::launch {

namespace {

constexpr std::uint64_t most_processes = 4096;

[[noreturn]] void refuse_host(std::string_view text, const std::string& why) {
  throw exception{errc::invalid_argument, "'" + std::string{text} + "' is not a host: " + why};
}

std::size_t process_count(std::string_view text, std::string_view host) {
  const auto count = parse_whole_number(text);
  if (!count || *count < 1 || *count > most_processes)
    refuse_host(host, "write the number of its processes, from 1 to " + std::to_string(most_processes) + ", as in a:4");
  return static_cast<std::size_t>(*count);
}

/// Restricts the characters of a name, because it becomes a word of a command that a remote shell may interpret.
bool is_name(std::string_view text) {
  constexpr std::string_view also = "._-@:%";
  return !text.empty() && text.front() != '-' && std::ranges::all_of(text, [&](char one) {
    return (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') || (one >= '0' && one <= '9') ||
           also.find(one) != std::string_view::npos;
  });
}

launch_host parse_host(std::string_view text) {
  std::string_view name = text;
  std::string_view count;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) refuse_host(text, "the bracket is not closed");
    name = text.substr(1, end - 1);
    count = text.substr(end + 1);
  } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    name = text.substr(0, colon);
    count = text.substr(colon);
    if (count.find(':', 1) != std::string_view::npos)
      refuse_host(text, "write an IPv6 address in brackets, [fe80::1]:4");
  }
  if (!is_name(name)) refuse_host(text, "write a name or an address, and how many processes it takes, as in a:4");
  if (!count.empty() && count.front() != ':') refuse_host(text, "a colon follows the name, as in a:4");
  return {std::string{name}, count.empty() ? 1 : process_count(count.substr(1), text)};
}

void add_host(std::vector<launch_host>& all, launch_host one) {
  if (std::ranges::any_of(all, [&](const launch_host& other) { return other.name == one.name; }))
    throw exception{errc::invalid_argument,
                    "the host " + one.name + " is named twice: name it once, with all its processes"};
  all.push_back(std::move(one));
}

/// Parses "a slots=4", "a:4", or an empty line.
void add_line(std::vector<launch_host>& all, std::string line) {
  line.resize(std::min(line.find('#'), line.size()));
  std::istringstream words{line};
  std::string host;
  std::string slots;
  if (!(words >> host)) return;
  if (!(words >> slots)) return add_host(all, parse_host(host));
  constexpr std::string_view sign = "slots=";
  std::string more;
  if (!slots.starts_with(sign) || words >> more || host.find(':') != std::string::npos)
    refuse_host(line, "write a:4 or a slots=4");
  launch_host one = parse_host(host);
  one.processes = process_count(std::string_view{slots}.substr(sign.size()), line);
  add_host(all, std::move(one));
}

} // namespace

std::vector<launch_host> parse_hosts(std::string_view text) {
  std::vector<launch_host> all;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    add_host(all, parse_host(rest.substr(0, comma)));
    if (comma == std::string_view::npos) return all;
    rest.remove_prefix(comma + 1);
  }
}

std::vector<launch_host> read_hosts_file(const std::filesystem::path& path) {
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown))
    throw exception{errc::missing, "the host file " + path.string() + " cannot be read"};
  constexpr std::size_t most_bytes = std::size_t{1} << 20U;
  std::istringstream file{read_bounded_file("the host file", path, most_bytes, "name a file with a host in each line")};
  std::vector<launch_host> all;
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    try {
      add_line(all, line);
    } catch (const exception& failure) {
      throw exception{failure.why().code, path.string() + ":" + std::to_string(number) + ": " + failure.why().text};
    }
  }
  if (all.empty())
    throw exception{errc::invalid_argument, "the host file " + path.string() + " names no host: write one per line"};
  return all;
}

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
    throw exception{errc::invalid_argument, "the number of processes is not given: use -n, or name hosts as in a:4"};
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
