/// Where the memory of a launch lies while it is on the host: data, without a device.
#pragma once

#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace troupe {

/// A copy between a device's memory and the host's.
struct host_staged_copy {
  std::byte* device = nullptr;
  std::size_t host = 0; ///< From the front of the host memory, in bytes.
  std::size_t size_bytes = 0;

  friend bool operator==(const host_staged_copy&, const host_staged_copy&) = default;
};

/// Of operations that are launched together, by one rank. Memory that overlaps on the device does so on the host, so
/// that what is in place stays so; all keeps its place within 256 bytes, so that elements stay aligned.
class host_staged_layout {
public:
  host_staged_layout(std::span<const operation* const> all, rank self, int world_size);

  /// That of the host memory.
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] const std::vector<host_staged_copy>& before() const noexcept { return before_; }
  /// Only what the operations write: what else is in their memory may be somebody else's.
  [[nodiscard]] const std::vector<host_staged_copy>& after() const noexcept { return after_; }
  /// \p what, one of those that it was made from or a part of one, on \p host memory.
  [[nodiscard]] operation moved(const operation& what, const buffer& host) const;

private:
  /// Memory of the device that is one piece on the host.
  struct block {
    std::byte* begin = nullptr;
    std::byte* end = nullptr;
    std::size_t host = 0;
  };
  void place(std::vector<block> used);
  [[nodiscard]] std::size_t host_of(const std::byte* address) const;
  [[nodiscard]] buffer moved(const buffer& memory, const buffer& host) const;

  std::vector<block> blocks_; ///< Ascending, apart.
  std::vector<host_staged_copy> before_;
  std::vector<host_staged_copy> after_;
  std::size_t size_bytes_ = 0;
};

} // namespace troupe
