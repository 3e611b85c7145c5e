/// Allocates staging memory for all ranks of a process.
#pragma once

#include <troupe/collectives/operation/staging_plan.hpp>
#include <troupe/device/memory/memory_pool.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// Device memory comes from a pool. Pinned chunks are kept here and never released, because page-locking memory while
/// operations are in flight can wait for them (BUF-1).
/// Threads: safe from any.
class staging_stock {
public:
  explicit staging_stock(staging_limits limits = {}) noexcept : limits_{limits} {}
  staging_stock(const staging_stock&) = delete;
  staging_stock& operator=(const staging_stock&) = delete;

  [[nodiscard]] const staging_limits& limits() const noexcept { return limits_; }

  /// Uses \p pool for staging memory of its device. A device without a pool gets one when it needs it.
  void add(const std::shared_ptr<memory_pool>& pool);
  /// Returns the pools of all devices.
  [[nodiscard]] std::vector<std::shared_ptr<memory_pool>> pools() const;
  /// Errors: out_of_memory.
  [[nodiscard]] buffer device_memory(const std::shared_ptr<device>& where, std::size_t size_bytes);

  /// Allocates the pinned chunks through which pageable memory of \p rank_count ranks is copied. May wait for the
  /// devices.
  /// Errors: out_of_memory.
  void reserve_pinned(const std::shared_ptr<device>& where, std::size_t rank_count);
  /// Returns a pinned chunk. Page-locks memory now only if no reserved chunk is left.
  [[nodiscard]] buffer take_pinned(const std::shared_ptr<device>& where);
  /// Takes a chunk back. Precondition: neither the device nor host functions use it any more.
  void give_pinned(buffer chunk) noexcept;

private:
  staging_limits limits_;
  mutable std::mutex mutex_;
  std::map<const device*, std::shared_ptr<memory_pool>> pools_; ///< Each pool keeps its device alive.
  std::vector<buffer> pinned_;
  std::size_t pinned_count_ = 0; ///< Number of all chunks, including taken ones.
};

} // namespace troupe
