/// The position of each device on the host, and the connection between each two devices. Peer access and NVLink are
/// queried from the driver, everything else from the machine.
#pragma once

#include <troupe/device/driver.hpp>
#include <troupe/device/topology/link_kind.hpp>
#include <troupe/device/topology/machine.hpp>

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// The position of one device.
struct device_place {
  device_id id;
  std::string pci_bus_id;
  locality local; ///< Without node and CPUs if nothing is known.
};

/// The connection between two devices, in one direction.
struct device_pair {
  device_id from;
  device_id to;
  bool peer_access = false; ///< Work on `from` can read and write the memory of `to`.
  link_kind link = link_kind::unknown;
  std::optional<int> nvlink_count{}; ///< Active links; empty if there is no NVLink or their number is unknown.
  std::string nvlink_source{};       ///< Source of the NVLink data, for people, e.g. "NVML".
};

/// Returns the position of a device. If the machine does not know the device's address, the locality is empty. If the
/// device is not a PCI device, the machine is not examined.
/// Errors: those of driver::describe() and of machine.
[[nodiscard]] device_place place_of(driver& api, device_id id, const machine& host = machine::here());

/// Returns the connection between two devices. Errors: those of driver::describe_peer() and of machine.
[[nodiscard]] device_pair pair_of(driver& api, const device_place& from, const device_place& to,
                                  const machine& host = machine::here());

/// The positions of a set of devices and all connections between them.
class topology {
public:
  /// Examines \p devices, in their order, each listed once. Errors: those of place_of() and pair_of().
  [[nodiscard]] static topology examine(driver& api, std::span<const device_id> devices,
                                        const machine& host = machine::here());

  [[nodiscard]] const std::vector<device_place>& places() const noexcept { return places_; }
  /// Returns the ordered pairs, row by row, including the pairs of a device with itself.
  [[nodiscard]] const std::vector<device_pair>& pairs() const noexcept { return pairs_; }
  /// Returns the pair of two devices. Errors: missing (a device that was not examined).
  [[nodiscard]] const device_pair& between(device_id from, device_id to) const;

private:
  std::vector<device_place> places_;
  std::vector<device_pair> pairs_;
};

} // namespace troupe
