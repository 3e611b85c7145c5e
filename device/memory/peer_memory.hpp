/// Defines an owner of peer memory: memory of a device that kernels of other devices and processes can access.
#pragma once

#include <troupe/device/device.hpp>
#include <troupe/device/file_descriptor.hpp>

#include <cstddef>
#include <memory>
#include <utility>

namespace troupe {

/// Owns one mapping of peer memory. The physical memory is released with its last mapping and descriptor, so a mapping
/// stays valid when the process that allocated the memory has ended.
/// Lifetime: destroy it only when no work that uses the mapping is in flight in this process. A failure is reported as
/// a leak. Errors: see driver::allocate_peer_memory(). Threads: the constructors may block, so call them on a helper
/// thread (BLK-1).
class peer_memory {
public:
  /// Allocates at least \p size_bytes on \p where, with undefined content.
  peer_memory(const std::shared_ptr<device>& where, std::size_t size_bytes)
    : peer_memory{where, where->api().allocate_peer_memory(where->id(), size_bytes)} {}
  /// Maps memory of this or another process, so that kernels on \p where can access it; CUDA copies it only if \p where
  /// is the device that the memory is on. \p size_bytes: the size of its owner.
  [[nodiscard]] static peer_memory import(const std::shared_ptr<device>& where, const file_descriptor& exported,
                                          std::size_t size_bytes) {
    peer_memory made{where, where->api().import_peer_memory(where->id(), exported, size_bytes)};
    made.is_imported_ = true;
    return made;
  }

  /// Returns a new descriptor of the memory, for import() in this or another process. Errors: unsupported (this is
  /// itself imported, which CUDA does not export).
  [[nodiscard]] file_descriptor export_handle() const {
    if (is_imported_) throw exception{errc::unsupported, "peer memory is exported by its owner alone"};
    const device& where = *address_.get_deleter().where;
    return where.api().export_peer_memory(where.id(), data());
  }
  [[nodiscard]] std::byte* data() const noexcept { return address_.get(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return address_.get_deleter().size_bytes; }

private:
  struct unmapper {
    std::shared_ptr<device> where;
    std::size_t size_bytes = 0;

    void operator()(std::byte* address) const noexcept;
  };

  peer_memory(std::shared_ptr<device> where, peer_mapping mapped)
    : address_{static_cast<std::byte*>(mapped.address), unmapper{std::move(where), mapped.size_bytes}} {}

  std::unique_ptr<std::byte, unmapper> address_;
  bool is_imported_ = false;
};

} // namespace troupe
