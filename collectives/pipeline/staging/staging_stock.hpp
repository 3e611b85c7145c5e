/// Where staging memory comes from, for all ranks of a process.
#pragma once

#include <troupe/collectives/pipeline/staging/staging_plan.hpp>
#include <troupe/device/memory/memory_pool.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// Device memory is a pool's; pinned chunks are kept here for ever, since page-locking memory while operations are in
/// flight can wait for them (BUF-1).
/// Threads: safe from any.
class staging_stock {
public:
  explicit staging_stock(staging_limits limits = {}) noexcept : limits_{limits} {}
  staging_stock(const staging_stock&) = delete;
  staging_stock& operator=(const staging_stock&) = delete;

  [[nodiscard]] const staging_limits& limits() const noexcept { return limits_; }

  /// Staging memory of \p pool's device will come from it. A device of none gets a pool of its own when it needs one.
  void add(const std::shared_ptr<memory_pool>& pool);
  /// Errors: out_of_memory.
  [[nodiscard]] buffer device_memory(const std::shared_ptr<device>& where, std::size_t size_bytes);

  /// Has the pinned chunks that pageable memory of \p rank_count ranks goes through. May wait for the devices.
  /// Errors: out_of_memory.
  void reserve_pinned(const std::shared_ptr<device>& where, std::size_t rank_count);
  /// A pinned chunk; page-locked now only if those reserved do not do.
  [[nodiscard]] buffer take_pinned(const std::shared_ptr<device>& where);
  /// When neither device nor host functions use it any more.
  void give_pinned(buffer chunk) noexcept;

private:
  staging_limits limits_;
  std::mutex guard_;
  std::map<const device*, std::shared_ptr<memory_pool>> pools_; ///< Pools hold their devices.
  std::vector<buffer> pinned_;
  std::size_t pinned_count_ = 0; ///< Made, here or taken.
};

} // namespace troupe
