/// What one rank's requests have come to, counted: by operation and size, with how long they took.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/recording/size_class.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/time.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <variant>

namespace troupe {

inline constexpr std::size_t operation_kinds = std::variant_size_v<operation>;
inline constexpr std::size_t errc_count = static_cast<std::size_t>(errc::internal) + 1;

/// Bucket i counts what took at most latency_bound(i); the last also what took longer.
inline constexpr std::size_t latency_buckets = 24;
/// 1, 2, 4, … µs, up to 4.2 s.
[[nodiscard]] constexpr nanoseconds latency_bound(std::size_t bucket) noexcept {
  return nanoseconds{std::int64_t{1000} << bucket};
}
[[nodiscard]] std::size_t latency_bucket_of(nanoseconds took) noexcept;

/// Requests of one operation and size class that have succeeded.
struct tally_cell {
  std::uint64_t requests = 0;
  std::uint64_t bytes = 0;                             ///< Of the buffers that the rank's parts name.
  nanoseconds latency{0};                              ///< In all, from acceptance until seen done.
  nanoseconds queueing{0};                             ///< In all, from acceptance until enqueued on the GPU.
  std::array<std::uint64_t, latency_buckets> within{}; ///< By latency; not added up.
};

/// A copy of a tally. Its figures belong to nearly the same moment: counting goes on while they are read.
struct tally_reading {
  std::array<std::array<tally_cell, size_class_count>, operation_kinds> cells{}; ///< By variant index and size class.
  std::array<std::uint64_t, errc_count> failed{}; ///< Requests answered with an error, by its code.
  std::uint64_t launches = 0;                     ///< Calls that launched something.
  std::uint64_t launched = 0;                     ///< Requests in them: more where several were fused.
};

/// Threads: each function says by how many at a time it may be called; none waits. read() by any.
class request_tally {
public:
  /// One request has succeeded. One thread at a time.
  void count_success(std::size_t kind, std::size_t bytes, nanoseconds queueing, nanoseconds latency) noexcept;
  /// One has been answered with an error. Any threads.
  void count_failure(errc code) noexcept;
  /// \p requests were launched by one call. One thread at a time.
  void count_launch(std::size_t requests) noexcept;

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
  alignas(64) number launches_{0}; ///< The launcher's, with the next.
  number launched_{0};
};

} // namespace troupe
