/// What the bench can measure: one entry for each operation says all that is particular to it.
#pragma once

#include <troupe/program/bench/reference_values.hpp>

#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace troupe::program {

/// Counts in elements. In place, both ranges lie in one buffer: rank r's begin r times the offset from its front.
struct bench_shape {
  std::size_t count = 0; ///< The operation's own argument; of a v-form, of each part.
  std::size_t send_count = 0;
  std::size_t recv_count = 0;
  std::size_t send_offset = 0;
  std::size_t recv_offset = 0;

  /// nccl-tests' size: of the larger buffer.
  [[nodiscard]] std::size_t size(std::size_t element_bytes) const noexcept;
};

/// The two ranges of one rank.
struct rank_memory {
  buffer send;
  buffer recv;
};

/// One rank's part of a request.
struct bench_arguments {
  rank_memory memory;
  std::size_t count = 0;
  dtype type = dtype::f32;
  reduction op = reduction::sum;
  int root = 0;
  int self = 0;
  int ranks = 1;

  [[nodiscard]] factor own_factor() const;
};

/// Whose result it is that is judged.
struct bench_seat {
  int self = 0;
  int ranks = 1;
  int root = 0;
};

struct bench_operation {
  std::string_view name; ///< Of the subcommand.
  bool reduces = false;
  bool has_root = false;
  bool has_in_place = true;
  bool moves_data = true; ///< Else there is nothing but its latency to measure.
  /// For \p elements of the larger buffer at most; parts are multiples of 16 bytes, as in nccl-tests.
  bench_shape (*shape)(std::size_t elements, int ranks, std::size_t element_bytes);
  /// Bus bandwidth for each unit of algorithm bandwidth, by nccl-tests' definition.
  double (*bus_factor)(int ranks);
  operation (*make)(const bench_arguments& of);
  /// What a rank must find in its result.
  std::vector<value_part> (*result)(const bench_shape& shape, const bench_seat& seat);
};

[[nodiscard]] std::span<const bench_operation> bench_operations() noexcept;

} // namespace troupe::program
