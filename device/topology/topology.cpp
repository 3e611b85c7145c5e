#include <troupe/device/topology/topology.hpp>

#include <algorithm>

namespace troupe {

device_place place_of(driver& api, device_id id, const machine& host) {
  const device_description what = api.describe(id);
  device_place place{.id = id, .pci_bus_id = what.pci_bus_id, .local = {}};
  if (what.local)
    place.local = *what.local;
  else if (const auto address = pci_address::parse(what.pci_bus_id))
    place.local = host.locate(*address).value_or(locality{});
  return place;
}

device_pair pair_of(driver& api, const device_place& from, const device_place& to, const machine& host) {
  const peer_description peers = api.describe_peer(from.id, to.id);
  device_pair pair{.from = from.id,
                   .to = to.id,
                   .peer_access = peers.access,
                   .nvlink_count = peers.nvlink_count,
                   .nvlink_source = peers.nvlink_source};
  const auto here = pci_address::parse(from.pci_bus_id);
  const auto there = pci_address::parse(to.pci_bus_id);
  if (from.id == to.id)
    pair.link = link_kind::same;
  else if (peers.nvlink.value_or(false))
    pair.link = link_kind::nvlink;
  else if (here && there)
    pair.link = host.path(*here, *there);
  return pair;
}

topology topology::examine(driver& api, std::span<const device_id> devices, const machine& host) {
  topology found;
  for (const device_id id : devices) found.places_.push_back(place_of(api, id, host));
  for (const device_place& from : found.places_)
    for (const device_place& to : found.places_) found.pairs_.push_back(pair_of(api, from, to, host));
  return found;
}

const device_pair& topology::between(device_id from, device_id to) const {
  const auto found =
      std::ranges::find_if(pairs_, [&](const device_pair& one) { return one.from == from && one.to == to; });
  if (found == pairs_.end())
    throw exception{errc::missing, "the topology has no connection between the devices " + to_string(from) + " and " +
                                       to_string(to) + ": name both when the topology is examined"};
  return *found;
}

} // namespace troupe
