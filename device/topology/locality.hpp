/// Describes where a device is on its host, as values: CPU sets, PCI addresses, NUMA localities and kinds of links; and
/// the placement of threads.
#pragma once

#include <troupe/device/enum_names.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// CPU numbers of the operating system, sorted and unique.
class cpu_set {
public:
  cpu_set() = default;
  cpu_set(std::initializer_list<int> cpus);
  explicit cpu_set(std::vector<int> cpus);

  [[nodiscard]] const std::vector<int>& cpus() const noexcept { return cpus_; }
  [[nodiscard]] std::size_t size() const noexcept { return cpus_.size(); }
  [[nodiscard]] bool empty() const noexcept { return cpus_.empty(); }

  friend bool operator==(const cpu_set&, const cpu_set&) = default;

private:
  std::vector<int> cpus_;
};

[[nodiscard]] cpu_set union_of(const cpu_set& left, const cpu_set& right);
[[nodiscard]] cpu_set intersection_of(const cpu_set& left, const cpu_set& right);

/// Returns the set in the format of the kernel's lists, e.g. "0-15,32"; an empty string for an empty set.
[[nodiscard]] std::string to_string(const cpu_set& cpus);
/// Parses the format of to_string(). Errors: invalid_argument.
[[nodiscard]] cpu_set parse_cpu_set(std::string_view list);

/// Placement of troupe's threads.
enum class thread_placement : std::uint8_t {
  near_device, ///< "near": on the CPUs near the device that they serve.
  anywhere,    ///< "none": chosen by the operating system.
};

template <>
inline constexpr std::array<std::string_view, 2> enum_names<thread_placement>{"near", "none"};
/// Parses the name of a placement. Errors: invalid_argument, naming the choices.
[[nodiscard]] inline thread_placement parse_thread_placement(std::string_view name) {
  return parse_enum<thread_placement>("thread placement", name);
}

/// The address of a device on the PCI bus.
struct pci_address {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;
  unsigned function = 0;

  /// Parses \p text, e.g. "0000:17:00.0" (with a domain of up to eight digits), in upper or lower case, with or without
  /// domain and function. Returns an empty value if \p text is not a PCI address, as for a device of the mock.
  [[nodiscard]] static std::optional<pci_address> parse(std::string_view text);

  friend constexpr auto operator<=>(const pci_address&, const pci_address&) = default;
};

/// Returns the address as text, e.g. "0000:17:00.0".
[[nodiscard]] std::string to_string(const pci_address& address);

/// The NUMA node and the CPUs near a device.
struct locality {
  std::optional<int> numa_node{}; ///< Empty if unknown, or if there is more than one.
  cpu_set cpus{};                 ///< CPUs with the shortest path to the device; empty if unknown.

  friend bool operator==(const locality&, const locality&) = default;
};

/// The best connection between two devices, from best to worst.
enum class link_kind : std::uint8_t {
  same,        ///< Both are the same device.
  nvlink,      ///< NVLink, directly or through NVSwitches.
  pcie_switch, ///< One or more PCIe switches, without the CPU.
  host_bridge, ///< PCIe host bridges of one NUMA node.
  numa,        ///< The interconnect between NUMA nodes.
  unknown,     ///< Not known.
};

} // namespace troupe
