/// nccl-tests' table: time and bandwidth by size, out of place and in place, troupe and raw in the same blocks.
#pragma once

#include <troupe/program/bench/bench_asker.hpp>
#include <troupe/program/bench/bench_memory.hpp>
#include <troupe/program/bench/bench_raw.hpp>
#include <troupe/program/bench/bench_report.hpp>
#include <troupe/program/support/progress_line.hpp>

#include <cstddef>
#include <cstdio>
#include <vector>

namespace troupe::program {

struct bandwidth_plan {
  const bench_operation* what = nullptr;
  std::vector<std::size_t> sizes; ///< In bytes.
  std::vector<dtype> types;
  std::vector<reduction> ops; ///< One, of any name, for what does not reduce.
  int root = 0;
  std::size_t iterations = 20; ///< In a block.
  std::size_t depth = 20;      ///< In flight at once.
  std::size_t warmups = 5;
  std::size_t blocks = 5;
  std::size_t checks = 1; ///< Of each size, in and out of place.
  bool timestamps = false;

  /// In the order in which they are reported: in place or not.
  [[nodiscard]] std::vector<bool> placements() const;
  /// For progress_line, in the unit of operation_work().
  [[nodiscard]] double expected_work(int ranks, bool with_raw) const;
};

/// What one operation of \p size_bytes takes, for guessing the time left: as much as 2 MiB more would without latency.
[[nodiscard]] double operation_work(std::size_t size_bytes) noexcept;

struct bandwidth_result {
  json rows = json::array();
  std::size_t wrong = 0;            ///< Elements, over all rows and ranks.
  double average_bus_bandwidth = 0; ///< Of troupe, in GB/s, over all rows, both placements.

  [[nodiscard]] int exit_status() const noexcept { return wrong == 0 ? 0 : 1; }
};

/// Measures all that \p plan names and prints each row when it is done. \p raw may be null: then its columns are not
/// printed. What the world refuses as unsupported has a line that says why instead of a row.
/// Errors: invalid_argument when no size holds an element for each rank.
[[nodiscard]] bandwidth_result measure_bandwidth(const bandwidth_plan& plan, int ranks, bench_memory& memory,
                                                 asker& who, raw_ranks* raw, std::FILE* table, progress_line& progress);

} // namespace troupe::program
