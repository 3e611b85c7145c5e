/// The pieces that cases consist of: each operation with its memory contents before and after, for a world of any size.
#pragma once

#include <troupe/program/conform/conform_case.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace troupe::program {

/// A pseudo-random sequence from a seed.
class draws {
public:
  explicit draws(std::uint64_t seed) noexcept : state_{scramble(seed)} {}
  /// Returns a number from 0 to \p limit − 1.
  [[nodiscard]] std::size_t below(std::size_t limit) noexcept {
    state_ = scramble(state_);
    return static_cast<std::size_t>(state_ % limit);
  }

private:
  std::uint64_t state_;
};

/// The parameters of a collective piece.
struct piece_wish {
  int ranks = 1;
  value_source values;
  std::size_t count = 0; ///< The operation's count; for a v-form, that of its longest part.
  bool in_place = false;
  bool unaligned = false; ///< If true, no range begins at a multiple of 16 bytes.
  bool factor_on_device = false;
  std::uint64_t seed = 0; ///< Determines roots, parts, gaps, and the position in the reference values.
};

/// One collective operation.
struct conform_collective {
  std::string_view name;
  bool reduces = false;
  bool can_be_in_place = true;
  bool count_is_part = false; ///< True: the count is that of each rank's part, so buffers hold up to n times as much.
  conform_piece (*make)(const piece_wish& wish);
};

[[nodiscard]] std::span<const conform_collective> conform_collectives() noexcept;

/// The parameters of a send and its recv.
struct transfer_wish {
  int from = 0;
  int to = 0;
  int tag = 0;
  dtype type = dtype::u8;
  std::size_t count = 0;
  bool unaligned = false;
  std::uint64_t seed = 0;
};
[[nodiscard]] conform_piece make_transfer(const transfer_wish& wish);

[[nodiscard]] conform_piece make_barrier(int ranks);

/// The parameters of one copy of \p size_bytes on every rank.
struct copy_wish {
  int ranks = 1;
  bool from_host = false;
  bool to_host = false;
  std::size_t size_bytes = 0;
  bool unaligned = false;
  std::uint64_t seed = 0;
};
[[nodiscard]] conform_piece make_copies(const copy_wish& wish);

} // namespace troupe::program
