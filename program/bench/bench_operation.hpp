/// Defines the operations that the bench can measure, their buffers, and the check of results. The conformance suite's
/// pieces define each rank's operations and the expected results.
#pragma once

#include <troupe/program/bench/frame/asker.hpp>
#include <troupe/program/conform/conform_pieces.hpp>

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/runtime/world.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace troupe::program {

/// The name is that of the subcommand.
struct bench_operation : conform_collective {
  bool moves_data = true; ///< If false, only the latency can be measured.

  /// Returns the operation's count argument (for a v-form, the count of each part) with which its larger buffer has at
  /// most \p elements. Parts are multiples of 16 bytes, as in nccl-tests.
  [[nodiscard]] std::size_t count_within(std::size_t elements, int ranks, std::size_t element_bytes) const noexcept;
  /// Returns the size as nccl-tests defines it: that of the larger buffer.
  [[nodiscard]] std::size_t buffer_bytes(std::size_t count, int ranks, std::size_t element_bytes) const noexcept;
  /// Returns the ratio of bus bandwidth to algorithm bandwidth, as nccl-tests defines it.
  [[nodiscard]] double bus_factor(int ranks) const noexcept;
};

/// Returns the collectives of the conformance suite, sendrecv and barrier.
[[nodiscard]] std::span<const bench_operation> bench_operations();

/// One measured case: an operation at one size.
struct bench_case {
  const bench_operation* what = nullptr;
  std::size_t count = 0;
  dtype type = dtype::f32;
  reduction op = reduction::sum;
  int root = 0;
  bool in_place = false;

  [[nodiscard]] conform_piece piece(int ranks, std::uint64_t seed) const;
};

/// Two buffers for each local rank of a world.
class bench_memory {
public:
  /// \p unaligned shifts the start of all ranges by that many elements.
  bench_memory(world where, std::size_t size_bytes, std::size_t unaligned);

  [[nodiscard]] std::vector<operation> parts(const bench_case& one) const;

  /// Sends one request through \p who with inputs from \p seed. Returns how many elements of all ranks' results are
  /// wrong; elements that were not written count as wrong.
  [[nodiscard]] std::size_t count_wrong(asker& who, const bench_case& one, std::uint64_t seed);

private:
  /// Returns the memory of each range of \p piece; empty buffers for ranks in other processes.
  [[nodiscard]] std::vector<buffer> place(const conform_piece& piece, dtype type) const;
  [[nodiscard]] std::vector<operation> parts_on(const std::vector<buffer>& memory, const conform_piece& piece) const;

  world world_;
  std::size_t unaligned_;
  std::map<rank, std::array<buffer, 2>> memory_; ///< A rank has at most two ranges.
  buffer staging_;
};

} // namespace troupe::program
