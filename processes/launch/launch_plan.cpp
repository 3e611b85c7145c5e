#include <troupe/processes/launch/launch_plan.hpp>

#include <troupe/processes/transport/join_secret.hpp>

#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <utility>

namespace troupe::launch {

std::uint16_t free_port() {
  const file_descriptor probe{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address{AF_INET, {}, {}, {}};
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (!probe || ::bind(probe.native(), generic, size) != 0 || ::getsockname(probe.native(), generic, &size) != 0)
    throw_system_error("bind", "no free TCP port could be found: for MASTER_PORT, name one with --master-port");
  return ntohs(address.sin_port);
}

process_spec launch_plan::spec_of(const launch_place& place) const {
  using text = std::optional<std::string>;
  const std::string number = std::to_string(place.number);
  process_spec spec{.program = request.program,
                    .arguments = request.arguments,
                    .environment = request.environment,
                    .prefix = request.prefixed ? "[" + place.name + "] " : ""};
  const auto set = [&](const char* name, text value) { spec.environment.push_back({name, std::move(value)}); };
  set("TROUPE_JOIN_TOKEN", token);
  set("TROUPE_CONTROL", control.empty() ? text{} : control);
  set("TROUPE_PROCESS", place.name);
  set("TROUPE_HOST", {});
  set("TROUPE_PLACE", number);
  set("TROUPE_DEVICE", number);
  set("TROUPE_SPARE", place.spare ? text{"1"} : text{});
  // Makes the spare load kernels while it waits, not when it is needed.
  if (place.spare) set("CUDA_MODULE_LOADING", "EAGER");
  // A spare has no rank until it takes one.
  set("RANK", place.spare ? text{} : number);
  set("WORLD_SIZE", place.spare ? text{} : std::to_string(request.processes));
  set("LOCAL_RANK", place.spare ? text{} : number);
  set("LOCAL_WORLD_SIZE", std::to_string(request.processes));
  set("NODE_RANK", "0");
  set("GROUP_RANK", "0");
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(master_port));
  return spec;
}

launch_plan make_launch_plan(launch_request request) {
  static_cast<void>(find_program(request.program));
  launch_plan plan;
  plan.token = make_join_token();
  for (std::size_t i = 0; i < request.processes; ++i) plan.places.push_back({.name = std::to_string(i), .number = i});
  for (std::size_t i = 0; i < request.spares; ++i)
    plan.places.push_back({.name = "s" + std::to_string(i), .number = i % request.processes, .spare = true});
  plan.master_port = request.master_port != 0 ? request.master_port : free_port();
  plan.request = std::move(request);
  return plan;
}

} // namespace troupe::launch
