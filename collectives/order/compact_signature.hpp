/// What is kept of an operation when it is gone: enough to compare most of them, and to name all of them to people.
#pragma once

#include <troupe/collectives/operation/operation.hpp>

#include <cstdint>
#include <string>

namespace troupe {

/// A signature (signature.hpp) without its vectors: plain, small, made without allocation.
struct compact_signature {
  std::uint64_t count =
      0; ///< Of the v-forms all elements, of a copy the bytes, of a group its parts, of a replay the plan.
  std::int32_t root = 0; ///< The peer, of a send or recv.
  std::int32_t tag = 0;
  std::uint8_t kind = 0; ///< Index in troupe::operation.
  dtype type{};
  reduction op{};
  bool staged = false;

  friend bool operator==(const compact_signature&, const compact_signature&) = default;
};

/// By what an operation is matched with its peers'.
enum class matching : std::uint8_t {
  all_ranks, ///< A collective, or a group with one in it: by its place among those of the lane.
  routes,    ///< A send, a recv, or a group of nothing else: by source, destination and tag of each.
  nobody,    ///< A copy, or a group of nothing.
};

[[nodiscard]] compact_signature compact(const operation& what) noexcept;
[[nodiscard]] matching matching_of(const operation& what) noexcept;
/// Whether equal compact signatures of this kind mean that the ranks agree.
[[nodiscard]] bool is_decided_by_compact(const compact_signature& what) noexcept;

/// As describe(operation), but for the parts of v-forms and groups, which are only counted.
[[nodiscard]] std::string describe(const compact_signature& what);

} // namespace troupe
