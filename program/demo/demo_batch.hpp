/// Holds the data of one client: a batch of all_reduces with inputs whose results are exact. Checks every element.
#pragma once

#include <troupe/program/conform/conform_image.hpp>

#include <troupe/runtime/world.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace troupe::program {

/// Memory of some of a world's ranks. It is allocated once and refilled for each round.
/// One round is: fill(), copies_in(), request() for each, copies_out(), wrong_results(), each awaited before the next.
class demo_batch {
public:
  /// \p ranks are those that this client serves: all ranks of the world, or one (SPMD). \p values may be shared.
  demo_batch(const world& where, const std::vector<rank>& ranks, std::size_t requests, std::size_t count,
             std::uint64_t seed, std::shared_ptr<known_values> values);

  /// Draws new shapes and inputs.
  void fill(std::uint64_t round);

  using ranked_operation = std::pair<rank, operation>;
  [[nodiscard]] std::vector<ranked_operation> copies_in() const;
  [[nodiscard]] std::size_t size() const noexcept { return requests_.size(); }
  /// Returns request \p index, with one part for each rank served.
  [[nodiscard]] std::vector<operation> request(std::size_t index) const { return requests_[index]; }
  [[nodiscard]] std::vector<ranked_operation> copies_out() const;
  /// Returns the number of requests with a wrong element at any rank served.
  [[nodiscard]] std::size_t wrong_results();

private:
  struct member {
    rank self;
    conform_image image;
    std::vector<std::vector<std::size_t>> placed{}; ///< The numbers of the ranges of each request.
  };

  int world_size_;
  std::size_t max_count_;
  std::uint64_t seed_;
  std::shared_ptr<known_values> values_;
  std::vector<member> members_;
  std::vector<std::vector<operation>> requests_;
};

} // namespace troupe::program
