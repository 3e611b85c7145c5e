/// A summary of an operation, which may outlive the operation. It suffices to compare most operations, and to name all
/// of them in messages.
#pragma once

#include <troupe/collectives/operation/operation.hpp>

#include <cstdint>
#include <string>

namespace troupe {

/// A signature (signature.hpp) without its vectors: small, trivially copyable, made without allocation.
struct compact_signature {
  /// v-forms: all elements; copy: bytes; group: number of parts; replay: number of the plan; barrier: 0, or one more
  /// than the number of the commit; agree: see compared_bytes().
  std::uint64_t count = 0;
  std::int32_t root = 0; ///< For a send or recv: the peer.
  std::int32_t tag = 0;  ///< For an agree: the rule.
  std::uint8_t kind = 0; ///< Index of the alternative of troupe::operation.
  dtype type{};
  reduction op{};
  bool staged = false;

  friend bool operator==(const compact_signature&, const compact_signature&) = default;
};

[[nodiscard]] compact_signature compact(const operation& what) noexcept;
/// Returns the signature without `staged`, which takes longer to determine.
[[nodiscard]] compact_signature compact_unstaged(const operation& what) noexcept;
/// Returns the ranks that the operation needs, and so how it is matched with theirs: by its position among those of the
/// lane (all_ranks), by source, destination and tag (peers), or not (itself).
[[nodiscard]] operation_reach reach_of(const operation& what) noexcept;
/// Returns whether equal compact signatures of this kind prove that the ranks agree.
[[nodiscard]] bool is_decided_by_compact(const compact_signature& what) noexcept;

[[nodiscard]] bool is_agree(const compact_signature& what) noexcept;

/// Like describe(operation), except that the parts of v-forms and groups are only counted.
[[nodiscard]] std::string describe(const compact_signature& what);

} // namespace troupe
