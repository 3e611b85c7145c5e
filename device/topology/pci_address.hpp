/// A PCI address as numbers. CUDA, NVML and hwloc format the same address differently.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

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

} // namespace troupe
