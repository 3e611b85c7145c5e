#include <troupe/device/error.hpp>
#include <troupe/device/topology/machine.hpp>

#include <hwloc.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

namespace troupe {

static_assert(HWLOC_API_VERSION >= 0x00020100, "hwloc 2.1 or newer is needed: install libhwloc-dev");

namespace {

using topology_owner = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

/// Components of hwloc that start GPU libraries only to name devices. troupe queries the driver instead.
constexpr std::array unwanted{"cuda", "nvml", "opencl", "gl", "rsmi", "levelzero"};

topology_owner examine(const std::string* description) {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0)
    throw exception{errc::unsupported, "hwloc cannot be initialised: " + std::generic_category().message(errno)};
  topology_owner owner{made, &hwloc_topology_destroy};
  for (const char* part : unwanted)
    static_cast<void>(hwloc_topology_set_components(made, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, part));
  static_cast<void>(hwloc_topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_ALL));
  // Load the whole machine: a device next to CPUs that this process may not use must not appear to be elsewhere.
  static_cast<void>(hwloc_topology_set_flags(made, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED));
  if (description != nullptr) {
    // hwloc expects the size to include the terminating null.
    if (hwloc_topology_set_xmlbuffer(made, description->c_str(), static_cast<int>(description->size()) + 1) != 0)
      throw exception{errc::invalid_argument, "the description is not XML of hwloc: create one with lstopo --of xml"};
  }
  if (hwloc_topology_load(made) != 0) {
    const std::string why = std::generic_category().message(errno);
    if (description != nullptr)
      throw exception{errc::invalid_argument,
                      "hwloc cannot load the description (" + why + "): create one with lstopo --of xml"};
    throw exception{errc::unsupported, "hwloc cannot examine this machine (" + why +
                                           "): check that /sys and /proc are mounted and that HWLOC_ variables are "
                                           "right"};
  }
  return owner;
}

hwloc_obj_t find(hwloc_topology_t host, const pci_address& at) {
  return hwloc_get_pcidev_by_busid(host, at.domain, at.bus, at.device, at.function);
}

hwloc_obj_t common_ancestor(hwloc_obj_t left, hwloc_obj_t right) {
  std::vector<hwloc_obj_t> above;
  for (hwloc_obj_t at = left; at != nullptr; at = at->parent) above.push_back(at);
  hwloc_obj_t at = right;
  while (at != nullptr && std::ranges::find(above, at) == above.end()) at = at->parent;
  return at;
}

bool is_pci_bridge(hwloc_obj_t object) {
  return object->type == HWLOC_OBJ_BRIDGE && object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
}

cpu_set as_cpu_set(hwloc_const_bitmap_t bits) {
  std::vector<int> cpus;
  for (int cpu = hwloc_bitmap_first(bits); cpu >= 0; cpu = hwloc_bitmap_next(bits, cpu)) cpus.push_back(cpu);
  return cpu_set{std::move(cpus)};
}

} // namespace

const machine& machine::here() {
  // Never destroyed, because a launcher thread that did not stop may still query it while the process exits.
  static const machine* const instance = new machine;
  return *instance;
}

machine machine::from_xml(const std::string& description) {
  return machine{description};
}

machine::machine(const std::string& description) : loaded_{examine(&description).release()} {}

machine::~machine() {
  if (loaded_ != nullptr) hwloc_topology_destroy(loaded_);
}

hwloc_topology* machine::native() const {
  const std::lock_guard lock{mutex_};
  if (loaded_ == nullptr) loaded_ = examine(nullptr).release();
  return loaded_;
}

std::optional<locality> machine::locate(const pci_address& device) const {
  hwloc_topology_t const host = native();
  const hwloc_obj_t found = find(host, device);
  if (found == nullptr) return std::nullopt;
  const hwloc_obj_t attached = hwloc_get_non_io_ancestor_obj(host, found);
  // On a machine with several nodes that does not report a device's node, the device is attached to all of them.
  const bool one_node = hwloc_bitmap_weight(attached->nodeset) == 1;
  return locality{.numa_node = one_node ? std::optional{hwloc_bitmap_first(attached->nodeset)} : std::nullopt,
                  .cpus = as_cpu_set(attached->cpuset)};
}

link_kind machine::path(const pci_address& from, const pci_address& to) const {
  if (from == to) return link_kind::same;
  hwloc_topology_t const host = native();
  const hwloc_obj_t here = find(host, from);
  const hwloc_obj_t there = find(host, to);
  if (here == nullptr || there == nullptr) return link_kind::unknown;

  const hwloc_obj_t shared = common_ancestor(here, there);
  if (is_pci_bridge(shared)) return link_kind::pcie_switch;
  if (shared->type == HWLOC_OBJ_BRIDGE) return link_kind::host_bridge;
  const auto nodes_of = [&](hwloc_obj_t object) { return hwloc_get_non_io_ancestor_obj(host, object)->nodeset; };
  const hwloc_const_bitmap_t left = nodes_of(here);
  const hwloc_const_bitmap_t right = nodes_of(there);
  if (hwloc_bitmap_intersects(left, right) == 0) return link_kind::numa;
  // Common nodes prove nothing if one of the two devices may be at any of several nodes.
  return hwloc_bitmap_weight(left) == 1 && hwloc_bitmap_isequal(left, right) != 0 ? link_kind::host_bridge
                                                                                  : link_kind::unknown;
}

int machine::numa_node_count() const {
  return hwloc_get_nbobjs_by_type(native(), HWLOC_OBJ_NUMANODE);
}

std::string machine::library_version() const {
  // The version recorded by the loaded library, which may differ from the header used at build time.
  const char* version = hwloc_obj_get_info_by_name(hwloc_get_root_obj(native()), "hwlocVersion");
  return version != nullptr ? version : "of unknown version";
}

bool machine::is_here() const {
  return hwloc_topology_is_thissystem(native()) != 0;
}

} // namespace troupe
