#include <troupe/collectives/backend/nccl/nccl_ras.hpp>

namespace troupe {

std::string nccl_ras_command(std::string_view enabled, std::string_view address) {
  if (enabled == "0") return {};
  std::string command = "ncclras -v";
  const auto colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return command;
  std::string_view host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  command += " -h " + std::string{host} + " -p " + std::string{address.substr(colon + 1)};
  return command;
}

} // namespace troupe
