/// Measures the table of nccl-tests: time and bandwidth by size, out of place and in place, with troupe and raw NCCL
/// measured in the same blocks.
#pragma once

#include <troupe/program/bench/bench_operation.hpp>
#include <troupe/program/bench/frame/asker.hpp>
#include <troupe/program/bench/frame/raw_ranks.hpp>
#include <troupe/program/bench/frame/report.hpp>
#include <troupe/program/support/progress_line.hpp>

#include <cstddef>
#include <cstdio>
#include <vector>

namespace troupe::program {

struct bandwidth_plan {
  const bench_operation* what = nullptr;
  std::vector<std::size_t> sizes; ///< In bytes.
  std::vector<dtype> types;
  std::vector<reduction> ops; ///< Exactly one, of any kind, for an operation that does not reduce.
  int root = 0;
  std::size_t iterations = 20; ///< Per block.
  std::size_t depth = 20;      ///< Operations in flight.
  std::size_t warmups = 5;
  std::size_t blocks = 5;
  std::size_t checks = 1; ///< Per size, both in place and out of place.
  bool timestamps = false;

  /// Returns the placements in the order in which they are reported. True means in place.
  [[nodiscard]] std::vector<bool> placements() const;
  /// Returns the work for progress_line, in the unit of operation_work().
  [[nodiscard]] double expected_work(int ranks, bool with_raw) const;
};

/// Returns the estimated work of one operation of \p size_bytes, for the time left. An operation counts as its size
/// plus 2 MiB, which stands for the latency.
[[nodiscard]] double operation_work(std::size_t size_bytes) noexcept;

struct bandwidth_result {
  json rows = json::array();
  std::size_t wrong = 0;            ///< Wrong elements, over all rows and ranks.
  double average_bus_bandwidth = 0; ///< Bus bandwidth of troupe in GB/s, averaged over all rows and both placements.

  [[nodiscard]] int exit_status() const noexcept { return wrong == 0 ? 0 : 1; }
};

/// Measures everything that \p plan names and prints each row when it is finished. If \p raw is null, its columns are
/// not printed. If the world refuses an operation as unsupported, a line with the reason replaces the row.
/// Errors: invalid_argument when no size holds an element for each rank.
[[nodiscard]] bandwidth_result measure_bandwidth(const bandwidth_plan& plan, int ranks, bench_memory& memory,
                                                 asker& who, raw_ranks* raw, std::FILE* table, progress_line& progress);

} // namespace troupe::program
