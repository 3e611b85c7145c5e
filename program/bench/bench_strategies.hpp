/// What asking through actors adds to a small operation: one request at a time, for each completion strategy and each
/// way to ask. `troupe bench latency` compares more ways with one strategy, in the same table.
#pragma once

#include <troupe/program/bench/bench_memory.hpp>
#include <troupe/program/bench/bench_raw.hpp>
#include <troupe/program/bench/bench_report.hpp>
#include <troupe/program/support/progress_line.hpp>

#include <troupe/runtime/runtime.hpp>

#include <cstddef>
#include <cstdio>

namespace troupe::program {

struct strategies_plan {
  std::size_t size_bytes = 8; ///< For people: the operations are given as parts.
  std::size_t iterations = 500;
  std::size_t blocks = 5;

  /// In the unit of operation_work().
  [[nodiscard]] double expected_work(bool with_raw) const;
};

/// Forms a world for each strategy over the ranks that \p parts are for. \p raw may be null.
[[nodiscard]] json measure_strategies(const strategies_plan& plan, runtime& rt, const std::vector<operation>& parts,
                                      raw_ranks* raw, std::FILE* table, progress_line& progress);

} // namespace troupe::program
