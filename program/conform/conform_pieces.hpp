/// Defines the cases of the conformance suite as data. A case consists of pieces: collectives or transfers, each with
/// the memory contents before and after, for a world of any size. The ranges of a case become buffers when it is run.
#pragma once

#include <troupe/program/bench/frame/reference_values.hpp>

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/completion/reply/outcome.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::program {

/// The kind of reference_values that a range's elements come from.
struct value_source {
  dtype type = dtype::u8;
  reduction op = reduction::sum;
  value_kind kind = value_kind::bits;
  friend auto operator<=>(const value_source&, const value_source&) = default;
};

/// One range of one rank's memory. Elements that are neither in `before` nor in `after` are poison that must stay
/// unchanged, like the guard zones around the range. Elements that are only in `after` begin as poison that differs
/// from every correct result.
struct conform_range {
  int owner = 0;
  std::string_view role; ///< The name in messages, e.g. "send".
  value_source values;
  std::size_t count = 0; ///< The number of elements.
  std::size_t shift = 0; ///< Elements between the range's front and the last fully aligned address before it.
  std::vector<value_part> before{};
  std::vector<value_part> after{};
  std::optional<int>
      factor_of{};      ///< If set, the range is one element, the factor of this rank, and `before` is unused.
  bool on_host = false; ///< True: in pinned host memory. False: in device memory.
};

/// Makes an operation from buffers: buffers[i] is for the i-th range of the piece.
using conform_maker = std::function<operation(std::span<const buffer> buffers)>;

struct conform_step {
  int rank = 0;
  conform_maker make;
  bool meets_peer = false; ///< True for a send or a recv.
};

/// One collective or one transfer, with the ranges and requests of all its ranks.
struct conform_piece {
  std::vector<conform_range> ranges{};
  std::vector<conform_step> steps{};
  /// The value that each reply must have, for an agree; its epoch and position are not compared.
  std::optional<agreed_value> agreed{};
};

struct conform_case {
  std::string name{};
  bool by_rank = false; ///< True: one request to each rank. False: one request to the world.
  bool grouped = false; ///< True: each rank's steps form one group. False: each rank has at most one step.
  /// If set, each rank's group lists its sends and receives in its own order. No two of them may have the same route
  /// and tag.
  std::optional<std::uint64_t> shuffled{};
  std::vector<conform_piece> pieces{};
};

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
struct piece_spec {
  int ranks = 1;
  value_source values;
  std::size_t count = 0; ///< The operation's count; for a v-form, that of its longest part.
  bool in_place = false;
  bool unaligned = false; ///< If true, no range begins at a multiple of 16 bytes.
  bool factor_on_device = false;
  std::uint64_t seed = 0; ///< Determines roots, parts, gaps, and the position in the reference values.
  std::optional<int> root{};
  bool even = false; ///< True: the parts of a v-form all have `count` elements, without gaps between them.
};

/// A collective operation that the suite tests.
struct conform_collective {
  std::string_view name;
  bool reduces = false;
  bool can_be_in_place = true;
  bool has_root = false;
  bool count_is_part = false; ///< True: the count is that of each rank's part, so buffers hold up to n times as much.
  conform_piece (*make)(const piece_spec& spec);
};

[[nodiscard]] std::span<const conform_collective> conform_collectives() noexcept;

/// The parameters of a send and its recv.
struct transfer_spec {
  int from = 0;
  int to = 0;
  int tag = 0;
  dtype type = dtype::u8;
  std::size_t count = 0;
  bool unaligned = false;
  std::uint64_t seed = 0;
};
[[nodiscard]] conform_piece make_transfer(const transfer_spec& spec);
/// Makes a piece in which every rank sends to the next and receives from the previous one. \p like: except its ranks.
[[nodiscard]] conform_piece make_ring(int ranks, const transfer_spec& like);

[[nodiscard]] conform_piece make_barrier(int ranks);
/// Makes a piece in which every rank contributes integers that follow from \p seed. \p stamp, of at most 54 bits, is in
/// each contribution, so that the values of different stamps differ.
[[nodiscard]] conform_piece make_agree(int ranks, agreement_rule rule, std::uint64_t seed,
                                       std::optional<std::uint64_t> stamp = {});

/// The parameters of one copy of \p size_bytes on every rank.
struct copy_spec {
  int ranks = 1;
  bool from_host = false;
  bool to_host = false;
  std::size_t size_bytes = 0;
  bool unaligned = false;
  std::uint64_t seed = 0;
};
[[nodiscard]] conform_piece make_copies(const copy_spec& spec);

/// Returns the operations of \p self in \p piece. memory[i] is for the i-th range.
[[nodiscard]] group part_of(const conform_piece& piece, rank self, std::span<const buffer> memory);
/// Returns the only operation of \p parts, or all of them as a group.
[[nodiscard]] operation as_operation(group parts);

} // namespace troupe::program
