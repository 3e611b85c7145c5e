/// A case of the conformance suite as data: what every rank is asked, what its memory holds before, and what it must
/// hold afterwards. It names no memory yet: ranges become buffers where a case is run.
#pragma once

#include <troupe/program/bench/reference_values.hpp>

#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::program {

/// Which reference_values a range's elements come from.
struct value_source {
  dtype type = dtype::u8;
  reduction op = reduction::sum;
  value_kind kind = value_kind::bits;
  friend auto operator<=>(const value_source&, const value_source&) = default;
};

/// One range of one rank's memory. Elements that are neither in `before` nor in `after` are poison that must stay, as
/// are the guard zones around; those in `after` alone begin as poison that no right result is.
struct conform_range {
  int owner = 0;
  std::string_view role; ///< For people: "send".
  value_source values;
  std::size_t count = 0; ///< In elements.
  std::size_t shift = 0; ///< Elements between an address aligned for anything and the range's front.
  std::vector<value_part> before{};
  std::vector<value_part> after{};
  std::optional<int> factor_of{}; ///< It is one element, this rank's factor, instead of `before`.
  bool on_host = false;           ///< In pinned memory, not in the device's.
};

/// Makes an operation of buffers, of which buffers[i] is for the i-th range of the piece.
using conform_maker = std::function<operation(std::span<const buffer> buffers)>;

struct conform_step {
  int rank = 0;
  conform_maker make;
  bool meets_peer = false; ///< A send or recv.
};

/// One collective or one transfer: all its ranks' ranges and requests.
struct conform_piece {
  std::vector<conform_range> ranges{};
  std::vector<conform_step> steps{};
};

struct conform_case {
  std::string name{};
  bool by_rank = false; ///< Asked of each rank; else of the world.
  bool grouped = false; ///< Each rank's steps are one group; else there is one at most.
  /// Each rank's group names its sends and receives in an order of its own. None of them may share route and tag.
  std::optional<std::uint64_t> shuffled{};
  std::vector<conform_piece> pieces{};
};

} // namespace troupe::program
