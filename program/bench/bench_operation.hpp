/// Defines the operations that the bench can measure, their buffers, and the check of results. One table entry holds
/// everything that is specific to an operation.
#pragma once

#include <troupe/program/bench/frame/asker.hpp>
#include <troupe/program/bench/frame/reference_values.hpp>

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/runtime/world.hpp>

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace troupe::program {

/// The sizes of one rank's operands; counts and offsets are in elements. In place, both ranges lie in one buffer, where
/// those of rank r begin at r times their offset.
struct bench_shape {
  std::size_t count = 0; ///< The operation's count argument; for a v-form, the count of each part.
  std::size_t send_count = 0;
  std::size_t recv_count = 0;
  std::size_t send_offset = 0;
  std::size_t recv_offset = 0;

  /// Returns the size as nccl-tests defines it: that of the larger buffer.
  [[nodiscard]] std::size_t size(std::size_t element_bytes) const noexcept;
};

/// The send range and the receive range of one rank.
struct rank_memory {
  buffer send;
  buffer recv;
};

/// The arguments of one rank's part of a request.
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

/// The position of the rank whose result is checked.
struct bench_rank {
  int self = 0;
  int ranks = 1;
  int root = 0;
};

struct bench_operation {
  std::string_view name; ///< The name of the subcommand.
  bool reduces = false;
  bool has_root = false;
  bool has_in_place = true;
  bool moves_data = true; ///< If false, only the latency can be measured.
  /// Returns a shape whose larger buffer has at most \p elements. Parts are multiples of 16 bytes, as in nccl-tests.
  bench_shape (*shape)(std::size_t elements, int ranks, std::size_t element_bytes);
  /// Returns the ratio of bus bandwidth to algorithm bandwidth, as nccl-tests defines it.
  double (*bus_factor)(int ranks);
  operation (*make)(const bench_arguments& of);
  /// Returns the expected contents of a rank's result.
  std::vector<value_part> (*result)(const bench_shape& shape, const bench_rank& context);
};

[[nodiscard]] std::span<const bench_operation> bench_operations() noexcept;

/// One measured case: an operation at one size.
struct bench_case {
  const bench_operation* what = nullptr;
  bench_shape shape;
  dtype type = dtype::f32;
  reduction op = reduction::sum;
  int root = 0;
  bool in_place = false;
};

/// A send buffer and a receive buffer for each local rank of a world.
class bench_memory {
public:
  /// \p unaligned shifts the start of all ranges by that many elements.
  bench_memory(world where, std::size_t size_bytes, std::size_t unaligned);

  [[nodiscard]] std::vector<operation> parts(const bench_case& one) const;

  /// Sends one request through \p who with inputs from \p seed. Returns how many elements of all ranks' results are
  /// wrong; elements that were not written count as wrong.
  [[nodiscard]] std::size_t count_wrong(asker& who, const bench_case& one, std::uint64_t seed);

private:
  [[nodiscard]] rank_memory memory_of(std::size_t index, const bench_case& one) const;

  world world_;
  std::size_t unaligned_;
  std::vector<buffer> send_, recv_; ///< By index among the local ranks.
  buffer staging_;
};

} // namespace troupe::program
