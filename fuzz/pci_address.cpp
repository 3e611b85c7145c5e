// Fuzzes the parser of PCI addresses, e.g. 0000:17:00.0.
#include "fuzz_target.hpp"

#include <troupe/device/topology/locality.hpp>

using namespace troupe;

TROUPE_FUZZ_TARGET() {
  const auto address = pci_address::parse(text);
  if (!address) return;
  fuzz::require(address->bus <= 0xff && address->device <= 0x1f && address->function <= 7, "numbers are in range");
  fuzz::require(pci_address::parse(to_string(*address)) == address, "a formatted address parses to the same address");
}
