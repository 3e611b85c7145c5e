/// Device memory that a communicator has registered with all its ranks, one range on each.
#pragma once

#include <troupe/device/device.hpp>

#include <cstddef>
#include <memory>
#include <string>

namespace troupe {

/// Owns the memory. Lifetime: it may be destroyed only after the communicator that registered it has been destroyed or
/// aborted, or if that communicator is its last user.
class registered_region {
public:
  registered_region(std::shared_ptr<device> where, std::byte* address, std::size_t size_bytes)
    : device_{std::move(where)}, address_{address}, size_bytes_{size_bytes} {}
  registered_region(const registered_region&) = delete;
  registered_region& operator=(const registered_region&) = delete;
  virtual ~registered_region() = default;

  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept { return device_; }
  [[nodiscard]] std::byte* address() const noexcept { return address_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  /// Returns a text for users: why requests on this memory run as on ordinary memory. Empty if the library has
  /// special kernels for it.
  [[nodiscard]] const std::string& why_ordinary() const noexcept { return why_ordinary_; }

protected:
  void ordinary(std::string why) { why_ordinary_ = std::move(why); }

private:
  std::shared_ptr<device> device_;
  std::byte* address_;
  std::size_t size_bytes_;
  std::string why_ordinary_;
};

/// Allocates the region from a memory pool of its own. \p why_ordinary: see registered_region.
[[nodiscard]] std::shared_ptr<registered_region>
make_pooled_region(const std::shared_ptr<device>& where, std::size_t size_bytes, std::string why_ordinary = {});

} // namespace troupe
