/// Draws random small collectives on memory whose contents are known, and computes what they leave there.
#pragma once

#include <troupe/collectives/backend/one_shot/one_shot_rule.hpp>
#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/program/conform/conform_pieces.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::program {

/// The collectives that may be one-shot kernels.
enum class small_kind : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  barrier,
};

/// One operation. Offsets are those of the ranks' operands in their arenas, in bytes, by rank.
struct small_operation {
  small_kind kind{};
  dtype type{};
  reduction op{};
  std::size_t count = 0;
  std::size_t root = 0;
  std::vector<std::size_t> send{}, recv{};
  std::vector<std::size_t> factor{};                    ///< For pre_mul_sum: elements of the tables.
  std::vector<std::array<std::byte, 8>> factor_value{}; ///< Their values; empty: they are read on the device.

  [[nodiscard]] std::size_t part_bytes() const noexcept { return count * size_bytes(type); }
};

/// Returns \p self's part of \p one, whose operands lie in its \p arena.
[[nodiscard]] operation part_of(const small_operation& one, rank self, const buffer& arena);

struct small_spec {
  int ranks = 2;
  std::uint64_t seed = 1;
  std::size_t largest = 65'536; ///< The most bytes of a part, plus one element.
  one_shot_limits limits{};     ///< Some parts are as large as these limits, and some are one element larger.
  bool rounded = false;         ///< Some sums of floats are rounded, where the limits permit a kernel.
};

/// The arenas of all ranks, as they are when every operation drawn so far has ended.
///
/// An arena has *tables* of inputs, which nothing writes; *fresh* copies of them, for operations in place; and an
/// *area* for all other results. A round draws operations until the area is full. Between two calls of begin_round() no
/// byte is written by two operations, nor by one that also reads it, except in place in a fresh copy. So each byte that
/// an operation has written, or should have, is as that operation left it when find_faults() compares the end of the
/// round: a wrong one cannot be lost by overwriting it, nor by a minimum that hides it in a later result, and stray
/// writes between results are found too. Results are inputs of later operations of the round (integers, and everything
/// that only moves bytes), so that an operation that begins too early is wrong as well. What an operation leaves that
/// never ran is the byte of an earlier round, which is another one with a probability of 255/256 for each byte.
///
/// Numbers: reduce_parts(), to the last bit. In the exact tables floats are small whole numbers, whose sums, products
/// and averages are exact in all dtypes in any order, so that the library computes the same.
class small_script {
public:
  small_script(const small_spec& spec, const capabilities& able);

  [[nodiscard]] std::size_t arena_bytes() const noexcept { return images_.front().size(); }
  [[nodiscard]] std::size_t table_bytes() const noexcept { return tables_ * stride_; } ///< Of the tables, at the front.
  [[nodiscard]] std::span<const std::byte> image(std::size_t at) const { return images_[at]; }
  [[nodiscard]] draws& choices() noexcept { return draw_; }

  /// Draws up to \p most operations that can be in one group. Fewer, or none, if the area is full.
  [[nodiscard]] std::vector<small_operation> draw_group(std::size_t most);
  /// Reserves for plans what has been drawn so far: each plan may run once in a round.
  void keep_drawn();
  /// Restores the fresh copies, as a copy of the tables behind them does on the device.
  void begin_round();
  /// Computes what \p group leaves in the arenas.
  void run(const std::vector<small_operation>& group);

  /// Compares \p seen, the arena of rank \p at from byte \p first. Returns how many operations of this round left a
  /// wrong byte there, counting bytes between results as one operation, and describes the first one in \p what.
  [[nodiscard]] std::size_t find_faults(std::size_t at, std::size_t first, std::span<const std::byte> seen,
                                        std::string& what) const;

private:
  [[nodiscard]] std::optional<small_operation> draw_operation(std::size_t settled);
  [[nodiscard]] std::size_t draw_count(dtype type);
  [[nodiscard]] std::size_t table_of(dtype type, bool rounded) const noexcept;
  /// Places the operands of \p one, whose inputs may be results before \p settled. Returns false if there is no room.
  [[nodiscard]] bool place(small_operation& one, std::size_t settled);
  void combine(const small_operation& one, std::size_t to);

  small_spec spec_;
  capabilities able_;
  std::size_t ranks_;
  draws draw_;
  std::size_t tables_;
  std::size_t stride_; ///< Of the tables, in bytes.
  std::vector<std::vector<std::byte>> images_;
  std::vector<std::size_t> fresh_, kept_fresh_; ///< The used bytes of each fresh copy.
  std::size_t area_, kept_area_;                ///< The end of what is used of the area.
  std::vector<small_operation> ran_;            ///< In this round.
};

} // namespace troupe::program
