/// A PCI address as numbers: CUDA, NVML and hwloc write one and the same address in different ways.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// Where a device is on the PCI bus.
struct pci_address {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;
  unsigned function = 0;

  /// \p text as "0000:17:00.0" (a domain of up to eight digits), in either case, or without domain or function.
  /// None if it is no PCI address, as that of a pretend device.
  [[nodiscard]] static std::optional<pci_address> parse(std::string_view text);

  friend constexpr auto operator<=>(const pci_address&, const pci_address&) = default;
};

/// E.g. "0000:17:00.0".
[[nodiscard]] std::string to_string(const pci_address& address);

} // namespace troupe
