#include <troupe/device/topology/pci_address.hpp>

#include <array>
#include <charconv>
#include <cstdio>

namespace troupe {

namespace {

/// Removes a hexadecimal number from the front of \p text and returns it. It has 1 to \p most_digits digits and is at
/// most \p limit.
std::optional<unsigned> take_number(std::string_view& text, std::size_t most_digits, unsigned limit) {
  unsigned value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  const auto length = static_cast<std::size_t>(end - text.data());
  if (problem != std::errc{} || length > most_digits || value > limit) return std::nullopt;
  text.remove_prefix(length);
  return value;
}

bool take(std::string_view& text, char wanted) {
  if (text.empty() || text.front() != wanted) return false;
  text.remove_prefix(1);
  return true;
}

} // namespace

std::optional<pci_address> pci_address::parse(std::string_view text) {
  pci_address found;
  const bool has_domain = text.find(':') != text.rfind(':');
  if (has_domain) {
    const auto domain = take_number(text, 8, 0xffff'ffff);
    if (!domain || !take(text, ':')) return std::nullopt;
    found.domain = *domain;
  }
  const auto bus = take_number(text, 2, 0xff);
  if (!bus || !take(text, ':')) return std::nullopt;
  const auto device = take_number(text, 2, 0x1f);
  if (!device) return std::nullopt;
  found.bus = *bus;
  found.device = *device;
  if (take(text, '.')) {
    const auto function = take_number(text, 1, 7);
    if (!function) return std::nullopt;
    found.function = *function;
  }
  return text.empty() ? std::optional{found} : std::nullopt;
}

std::string to_string(const pci_address& address) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.%x", address.domain, address.bus, address.device,
                address.function);
  return text.data();
}

} // namespace troupe
