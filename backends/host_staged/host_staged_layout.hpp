/// Computes where the memory of a launch is placed on the host. Plain data, independent of a device.
#pragma once

#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace troupe {

/// A copy between device memory and host memory.
struct host_staged_copy {
  std::byte* device = nullptr;
  std::size_t host = 0; ///< Offset in the host memory, in bytes.
  std::size_t size_bytes = 0;

  friend bool operator==(const host_staged_copy&, const host_staged_copy&) = default;
};

/// The layout of operations that one rank launches together. Memory that overlaps on the device overlaps in the same
/// way on the host, so that in-place operations stay in place. Addresses keep their offset modulo 256 bytes, so that
/// elements stay aligned.
class host_staged_layout {
public:
  host_staged_layout(std::span<const operation* const> all, rank self, int world_size);

  /// Returns the size of the host memory.
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] const std::vector<host_staged_copy>& before() const noexcept { return before_; }
  /// Returns the copies back to the device. They cover only ranges that the operations write, because other clients may
  /// use the rest of the memory.
  [[nodiscard]] const std::vector<host_staged_copy>& after() const noexcept { return after_; }
  /// Returns \p what with its memory replaced by \p host memory. \p what is one of the operations given to the
  /// constructor, or a part of one.
  [[nodiscard]] operation moved(const operation& what, const buffer& host) const;

private:
  /// A range of device memory that is contiguous on the host.
  struct block {
    std::byte* begin = nullptr;
    std::byte* end = nullptr;
    std::size_t host = 0;
  };
  void place(std::vector<block> used);
  [[nodiscard]] std::size_t host_of(const std::byte* address) const;
  [[nodiscard]] buffer moved(const buffer& memory, const buffer& host) const;

  std::vector<block> blocks_; ///< In ascending order, without overlaps.
  std::vector<host_staged_copy> before_;
  std::vector<host_staged_copy> after_;
  std::size_t size_bytes_ = 0;
};

} // namespace troupe
