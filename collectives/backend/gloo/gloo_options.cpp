#include <troupe/collectives/backend/gloo/gloo_backend.hpp>
#include <troupe/collectives/backend/gloo/gloo_endpoint.hpp>

#include <string>

namespace troupe {

std::string_view to_string(gloo_memory memory) noexcept {
  switch (memory) {
    case gloo_memory::host: return "host";
    case gloo_memory::device: return "device";
  }
  return {};
}

gloo_memory parse_gloo_memory(std::string_view name) {
  for (const gloo_memory one : {gloo_memory::host, gloo_memory::device})
    if (to_string(one) == name) return one;
  throw exception{errc::invalid_argument,
                  "unknown memory for Gloo '" + std::string{name} + "': choose one of host, device"};
}

void check(const gloo_options& options) {
  static_cast<void>(parse_socket_address(options.interface_address));
}

} // namespace troupe
