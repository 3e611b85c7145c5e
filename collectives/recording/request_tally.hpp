/// Counts one rank's requests and their durations, by operation and size.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/time.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

namespace troupe {

/// The largest size of each class except the last, in bytes.
inline constexpr std::array<std::size_t, 6> size_class_bounds{256,
                                                              std::size_t{4} << 10U,
                                                              std::size_t{64} << 10U,
                                                              std::size_t{1} << 20U,
                                                              std::size_t{16} << 20U,
                                                              std::size_t{256} << 20U};
inline constexpr std::size_t size_class_count = size_class_bounds.size() + 1;
/// The largest size of each class as text: "256", "4K", …; "inf" for the last.
inline constexpr std::array<std::string_view, size_class_count> size_class_names{"256", "4K",   "64K", "1M",
                                                                                 "16M", "256M", "inf"};

/// Returns the class of a request of \p bytes.
[[nodiscard]] constexpr std::size_t size_class_of(std::size_t bytes) noexcept {
  std::size_t at = 0;
  while (at < size_class_bounds.size() && bytes > size_class_bounds[at]) ++at;
  return at;
}

inline constexpr std::size_t operation_kinds = std::variant_size_v<operation::variant>;
inline constexpr std::size_t errc_count = static_cast<std::size_t>(errc::internal) + 1;

/// Bucket i counts requests that took at most latency_bound(i); the last one also counts all slower ones.
inline constexpr std::size_t latency_buckets = 24;
/// Returns 1, 2, 4, … µs, and 4.2 s for the last bucket but one.
[[nodiscard]] constexpr nanoseconds latency_bound(std::size_t bucket) noexcept {
  return nanoseconds{std::int64_t{1000} << bucket};
}
[[nodiscard]] std::size_t latency_bucket_of(nanoseconds took) noexcept;

/// Requests of one operation and size class that have succeeded.
struct tally_cell {
  std::uint64_t requests = 0;
  std::uint64_t bytes = 0;                             ///< Size of the buffers that the rank's parts use.
  nanoseconds latency{0};                              ///< Sum of the times from acceptance until seen done.
  nanoseconds queueing{0};                             ///< Sum of the times from acceptance until enqueued on the GPU.
  std::array<std::uint64_t, latency_buckets> within{}; ///< Requests in each latency bucket; not cumulative.
};

/// A copy of a tally. Counting continues during the read, so its figures may be from slightly different moments.
struct tally_reading {
  std::array<std::array<tally_cell, size_class_count>, operation_kinds> cells{}; ///< By variant index and size class.
  std::array<std::uint64_t, errc_count> failed{}; ///< Requests answered with an error, by its code.
  std::uint64_t launches = 0;                     ///< Launch calls that launched at least one request.
  std::uint64_t launched = 0;                     ///< Requests in these calls: more than calls if several were fused.
  launch_counts ways{};                           ///< Without the launches of replays.
};

/// The counters of one rank. Threads: each counting function states how many threads may call it at a time. read() may
/// be called from any thread. No function waits.
class request_tally {
public:
  /// Counts one successful request. Threads: one at a time.
  void count_success(std::size_t kind, std::size_t bytes, nanoseconds queueing, nanoseconds latency) noexcept;
  /// Counts one request answered with an error. Threads: any.
  void count_failure(errc code) noexcept;
  /// Counts one call that launched \p requests. Threads: one at a time.
  void count_launch(std::size_t requests) noexcept;
  /// Counts what a communicator has launched from \p before to \p after. Threads: one at a time.
  void count_ways(const launch_counts& before, const launch_counts& after) noexcept;

  [[nodiscard]] tally_reading read() const noexcept;

private:
  using number = std::atomic<std::uint64_t>;
  struct cell {
    number requests{0};
    number bytes{0};
    number latency{0};
    number queueing{0};
    std::array<number, latency_buckets> within{};
  };

  std::array<std::array<cell, size_class_count>, operation_kinds> cells_{};
  std::array<number, errc_count> failed_{};
  alignas(64) number launches_{0}; ///< Written by the launcher, like launched_.
  number launched_{0};
  number one_shot_launches_{0}, one_shot_operations_{0}, library_launches_{0}, library_operations_{0};
};

} // namespace troupe
