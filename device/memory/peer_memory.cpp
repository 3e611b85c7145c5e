#include <troupe/device/memory/peer_memory.hpp>

#include <troupe/device/memory/leak_report.hpp>

namespace troupe {

void peer_memory::unmapper::operator()(std::byte* address) const noexcept {
  return_or_report("peer memory", [&] { where->api().unmap_peer_memory(where->id(), {address, size_bytes}); });
}

} // namespace troupe
