#include <troupe/collectives/gloo/gloo_door.hpp>
#include <troupe/collectives/gloo/gloo_options.hpp>

namespace troupe {

void check(const gloo_options& options) {
  static_cast<void>(parse_socket_address(options.interface_address));
}

} // namespace troupe
