#include <troupe/actors/control/caf_remote.hpp>
#include <troupe/device/error.hpp>

#include <caf/io/basp_broker.hpp>
#include <caf/io/middleman.hpp>
#include <caf/scoped_actor.hpp>

#include <cstdint>
#include <set>
#include <string>
#include <utility>

namespace troupe::compat {

namespace {

/// A placeholder port: BASP finds published actors by their port, but here each connection publishes one actor, so all
/// use the same number.
constexpr std::uint16_t no_port = 1;

#if TROUPE_CAF_0_17
caf::actor basp_broker(caf::actor_system& system) {
  return system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
}
#else
caf::actor basp_broker(caf::actor_system& system) {
  return system.middleman().named_broker<caf::io::basp_broker>("BASP");
}
#endif

} // namespace

void register_remote_types() {
#if !TROUPE_CAF_0_17
  caf::io::middleman::init_global_meta_objects();
#endif
}

void load_remote(caf::actor_system_config& settings) {
  settings.load<caf::io::middleman>();
}

// These are the messages that CAF's middleman sends to the same broker after it has opened a socket of its own.
void offer_through(caf::actor_system& system, const caf::actor& target, file_descriptor connection) {
  auto line = system.middleman().backend().new_scribe(connection.release());
  auto offered = caf::actor_cast<caf::strong_actor_ptr>(target);
#if TROUPE_CAF_0_17
  caf::anon_send(basp_broker(system), caf::publish_atom_v, std::move(line), no_port, std::move(offered),
                 std::set<std::string>{});
#else
  caf::anon_mail(caf::publish_atom_v, std::move(line), no_port, std::move(offered), std::set<std::string>{})
      .send(basp_broker(system));
#endif
}

caf::actor find_through(caf::actor_system& system, file_descriptor connection) {
  auto line = system.middleman().backend().new_scribe(connection.release());
  const caf::scoped_actor self{system, true};
#if TROUPE_CAF_0_17
  auto asked = self->request(basp_broker(system), caf::infinite, caf::connect_atom_v, std::move(line), no_port);
#else
  auto asked = self->mail(caf::connect_atom_v, std::move(line), no_port).request(basp_broker(system), caf::infinite);
#endif
  caf::actor found;
  std::string fault = "it offers no actor";
  std::move(asked).receive(
      [&](const caf::node_id&, const caf::strong_actor_ptr& offered, const std::set<std::string>&) {
        if (offered) found = caf::actor_cast<caf::actor>(offered);
      },
      [&](const caf::error& why) { fault = to_string(why); });
  if (!found)
    throw exception{errc::missing,
                    "the controller does not answer (" + fault + "): start it first, or correct its address"};
  return found;
}

} // namespace troupe::compat
