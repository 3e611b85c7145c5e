/// What the bench can measure: one entry for each operation says all that is particular to it.
#pragma once

#include <troupe/collectives/operation.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace troupe::program {

/// Counts in elements. In place, both ranges lie in one buffer: rank r's begin r times the offset from its front.
struct bench_shape {
  std::size_t count = 0; ///< The operation's own argument.
  std::size_t send_count = 0;
  std::size_t recv_count = 0;
  std::size_t send_offset = 0;
  std::size_t recv_offset = 0;

  /// nccl-tests' size: of the larger buffer.
  [[nodiscard]] std::size_t size(std::size_t element_bytes) const noexcept;
};

/// Elements of a rank's result that come from one place: of one rank's input, or of all ranks' combined.
struct result_part {
  std::size_t first = 0; ///< In the result.
  std::size_t count = 0;
  std::optional<int> from{};  ///< A rank; none means the reduction over all.
  std::size_t from_first = 0; ///< In that input.
};

/// The two ranges of one rank.
struct rank_memory {
  buffer send;
  buffer recv;
};

struct bench_operation {
  std::string_view name; ///< Of the subcommand, and as in nccl-tests without "_perf".
  /// For \p elements of the larger buffer at most.
  bench_shape (*shape)(std::size_t elements, int ranks);
  /// Bus bandwidth for each unit of algorithm bandwidth, by nccl-tests' definition.
  double (*bus_factor)(int ranks);
  operation (*make)(const rank_memory& memory, std::size_t count, dtype type, reduction op);
  /// What rank \p self must find in its result.
  std::vector<result_part> (*result)(const bench_shape& shape, int self, int ranks);
};

[[nodiscard]] std::span<const bench_operation> bench_operations() noexcept;

} // namespace troupe::program
