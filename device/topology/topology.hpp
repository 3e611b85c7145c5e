/// What lies where: each device's place on the host, and what lies between each two. The driver is asked for what only
/// it knows (peer access, NVLink), the machine for the rest.
#pragma once

#include <troupe/device/driver.hpp>
#include <troupe/device/topology/link_kind.hpp>
#include <troupe/device/topology/locality.hpp>
#include <troupe/device/topology/machine.hpp>

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// Where one device is.
struct device_place {
  device_id id;
  std::string pci_bus_id;
  locality local; ///< Nothing known: no node, no CPUs.
};

/// What lies between two devices, in one direction.
struct device_pair {
  device_id from;
  device_id to;
  bool peer_access = false; ///< Work on `from` can read and write the memory of `to`.
  link_kind link = link_kind::unknown;
  std::optional<int> nvlink_count{}; ///< Active links; none: no NVLink, or their number cannot be told.
  std::string nvlink_source{};       ///< Who told about NVLink, for people, e.g. "NVML".
};

/// Errors: those of driver::describe() and of machine. A device whose address the machine does not know has a place
/// where nothing is known; for one that is no PCI device the machine is not examined.
[[nodiscard]] device_place place_of(driver& api, device_id id, const machine& host = machine::here());

/// Errors: those of driver::describe_peer() and of machine.
[[nodiscard]] device_pair pair_of(driver& api, const device_place& from, const device_place& to,
                                  const machine& host = machine::here());

/// The places of some devices and all that lies between them.
class topology {
public:
  /// Of \p devices, in their order, each named once. Errors: those of place_of() and pair_of().
  [[nodiscard]] static topology examine(driver& api, std::span<const device_id> devices,
                                        const machine& host = machine::here());

  [[nodiscard]] const std::vector<device_place>& places() const noexcept { return places_; }
  /// Ordered pairs, row by row, those of a device with itself included.
  [[nodiscard]] const std::vector<device_pair>& pairs() const noexcept { return pairs_; }
  /// Errors: missing (a device that was not examined).
  [[nodiscard]] const device_pair& between(device_id from, device_id to) const;

private:
  std::vector<device_place> places_;
  std::vector<device_pair> pairs_;
};

} // namespace troupe
