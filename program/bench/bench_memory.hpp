/// The buffers of a bench's operations, and the check of their contents against known results.
#pragma once

#include <troupe/program/bench/bench_asker.hpp>
#include <troupe/program/bench/bench_operation.hpp>

#include <troupe/runtime/world.hpp>

#include <cstddef>
#include <vector>

namespace troupe::program {

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
