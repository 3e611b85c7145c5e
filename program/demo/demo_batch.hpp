/// Holds the data of one client: a batch of all_reduces with inputs whose results are exact. Checks every element.
#pragma once

#include <troupe/runtime/world.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace troupe::program {

/// Buffers for some of a world's ranks. They are allocated once and refilled for each round.
/// One round is: fill(), copies_in(), requests(), copies_out(), wrong_results(), each awaited before the next.
class demo_batch {
public:
  /// \p ranks are those that this client serves: all ranks of the world, or one (SPMD).
  demo_batch(const world& where, const std::vector<rank>& ranks, std::size_t requests, std::size_t count,
             std::uint64_t seed);

  /// Draws new shapes and inputs.
  void fill(std::uint64_t round);

  using ranked_operation = std::pair<rank, operation>;
  [[nodiscard]] std::vector<ranked_operation> copies_in() const;
  [[nodiscard]] std::size_t size() const noexcept { return shapes_.size(); }
  /// Returns request \p index, with one part for each rank served.
  [[nodiscard]] std::vector<operation> request(std::size_t index) const;
  [[nodiscard]] std::vector<ranked_operation> copies_out() const;
  /// Returns the number of requests with a wrong element at any rank served.
  [[nodiscard]] std::size_t wrong_results() const;

private:
  struct shape {
    std::size_t count;
    dtype type;
    reduction op;
  };
  struct lane {
    rank self;
    buffer host_in, host_out, send, recv;
  };
  [[nodiscard]] std::size_t value(std::size_t request, std::size_t element, rank self) const noexcept;
  [[nodiscard]] std::size_t expected(std::size_t request, std::size_t element) const noexcept;
  [[nodiscard]] std::size_t offset_of(std::size_t request) const noexcept { return request * stride_bytes_; }

  int world_size_;
  std::size_t stride_bytes_;
  std::uint64_t seed_;
  std::uint64_t round_ = 0;
  std::size_t max_count_;
  std::vector<lane> lanes_;
  std::vector<shape> shapes_;
};

} // namespace troupe::program
