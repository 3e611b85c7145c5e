/// Signatures: the properties of an operation on which all ranks must agree. Memory is not one of them. Signatures are
/// compared before launch (ORD-2), and by the mock.
#pragma once

#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// One operation of one rank, or one part of its group. Fields that do not apply keep their defaults.
struct signature {
  std::size_t kind = 0; ///< Index of the alternative of troupe::operation.
  dtype type{};
  reduction op{};
  std::size_t count = 0; ///< For a barrier: 0, or one more than the number of the commit. Agree: compared_bytes().
  rank root{};           ///< For a send or recv, the peer.
  int tag = 0;           ///< For an agree: the rule.
  /// Counts of the v-forms. For an all_to_all_v, they are the rank's row and column of the matrix of all counts.
  std::vector<std::size_t> send_counts{};
  std::vector<std::size_t> recv_counts{};
  bool staged = false; ///< Launched in chunks because of host memory (staging_plan.hpp).

  [[nodiscard]] bool is(std::size_t operation_index) const noexcept { return kind == operation_index; }
  [[nodiscard]] bool is_send() const noexcept;
  [[nodiscard]] bool is_recv() const noexcept;
  [[nodiscard]] bool is_point_to_point() const noexcept { return is_send() || is_recv(); }
};

/// Returns one signature, or for a group one for each part except copies, which are local to their rank.
[[nodiscard]] std::vector<signature> signatures_of(const operation& what);

/// Returns the order in which the sends and receives of one launch match those of their peers: by tag, then as given.
/// The result holds the indices into \p all of its point-to-point parts.
[[nodiscard]] std::vector<std::size_t> point_to_point_order(std::span<const signature> all);

/// Checks that the ranks' parts, in rank order, match: the same collectives in the same order, and a recv for each
/// send. Returns errc::none, or errc::mismatch naming two ranks and their operations.
[[nodiscard]] error check_agreement(std::span<const std::vector<signature>> ranks);
[[nodiscard]] error check_agreement(std::span<const operation> parts);

/// Returns one line for people: "all_reduce of 1024 f32, sum".
[[nodiscard]] std::string describe(const signature& what);

} // namespace troupe
