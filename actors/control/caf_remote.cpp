#include <troupe/actors/control/caf_remote.hpp>
#include <troupe/device/error.hpp>

#include <caf/io/middleman.hpp>

#include <string>

namespace troupe::compat {

namespace {

constexpr const char* loopback = "127.0.0.1";

} // namespace

void register_remote_types() {
#if !TROUPE_CAF_0_17
  caf::io::middleman::init_global_meta_objects();
#endif
}

void load_remote(caf::actor_system_config& settings) {
  settings.load<caf::io::middleman>();
}

std::uint16_t publish_on_loopback(caf::actor_system& system, const caf::actor& whom, std::uint16_t port) {
  const auto got = system.middleman().publish(whom, port, loopback, true);
  if (!got)
    throw exception{errc::invalid_argument, "port " + std::to_string(port) + " of " + loopback + " cannot be opened (" +
                                                to_string(got.error()) +
                                                "): somebody else may use it; name another, or 0 for any"};
  return *got;
}

caf::actor find_on_loopback(caf::actor_system& system, std::uint16_t port) {
  auto found = system.middleman().remote_actor(loopback, port);
  if (!found)
    throw exception{errc::missing, std::string{"nobody answers at "} + loopback + ":" + std::to_string(port) + " (" +
                                       to_string(found.error()) + "): start the controller first, or correct the port"};
  return std::move(*found);
}

} // namespace troupe::compat
