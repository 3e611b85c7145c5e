/// What a one-shot kernel is launched with: a table of operations, in the form in which CUDA's kernel and the mock's
/// read it.
#pragma once

#include <troupe/collectives/backend/one_shot/line_protocol.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace troupe {

inline constexpr unsigned one_shot_lanes = 32;     ///< The threads of a warp.
inline constexpr unsigned one_shot_threads = 1024; ///< The most threads of a block.
inline constexpr unsigned one_shot_blocks = 32;    ///< The most blocks of a launch: few, as record 0106 says.
inline constexpr unsigned one_shot_lines = 4;      ///< The most lines that a thread sends to each rank.
inline constexpr unsigned one_shot_entries = 64;   ///< The most operations of a launch.
inline constexpr unsigned one_shot_ranks = 8;

/// How many threads a launch has. All ranks give an operation the same shape.
struct one_shot_shape {
  std::uint16_t blocks = 1;
  std::uint16_t warps_per_block = 1;
  /// The lines that a warp sends to each rank, one after another of an operation's part: the lanes times 1, 2 or 4. In
  /// an operation's last warp fewer, if part_bytes says so; at least 1 in each.
  std::uint16_t lines_per_warp = one_shot_lanes;
};

/// The kernels. All of them exchange the same lines for the same operation, so that ranks may choose differently.
enum class one_shot_form : std::uint8_t {
  any,     ///< One operation. Its argument, and that of the sums, is one_shot_arguments<1>.
  several, ///< Operations in a table: one_shot_arguments<one_shot_entries>.
  f32_sum, ///< One all_reduce by sum, of whole lines in aligned memory.
  f16_sum,
  bf16_sum,
};
inline constexpr std::array all_one_shot_forms{one_shot_form::any, one_shot_form::several, one_shot_form::f32_sum,
                                               one_shot_form::f16_sum, one_shot_form::bf16_sum};

/// One rank's part of one operation. A *part* is what one rank sends to one other: all parts have the same size.
/// Everything but the addresses is the same at all ranks.
struct one_shot_entry {
  const std::byte* send = nullptr; ///< Any alignment.
  std::byte* recv = nullptr;       ///< Any alignment.
  /// For pre_mul_sum: the factor, one element, or with \p factor_on_device its address in device memory.
  std::uint64_t factor = 0;
  std::uint32_t part_bytes = 0;
  std::uint32_t send_stride = 0; ///< In bytes from the part for one rank to that for the next. 0: all get the same.
  std::uint32_t recv_stride = 0; ///< In bytes from the part of one rank to that of the next, if they are not combined.
  std::uint16_t first_warp = 0;  ///< The first of its warps, which are counted through all blocks.
  std::int8_t from = -1;         ///< The only rank that sends its part; -1: all do.
  std::int8_t to = -1;           ///< The only rank that gets parts; -1: all do.
  std::uint8_t type = 0;         ///< A dtype.
  std::uint8_t op = 0;           ///< A reduction.
  bool combines = false;         ///< The parts are combined by \p op. Otherwise each one is copied to its place.
  bool factor_on_device = false;
};

/// The arguments of a launch of up to \p Capacity operations.
template <unsigned Capacity>
struct one_shot_arguments {
  static constexpr unsigned capacity = Capacity;

  line_layout layout{};
  std::byte* scratch[one_shot_ranks] = {}; ///< The scratch of each rank, as this rank's device addresses it.
  std::uint32_t* control = nullptr;        ///< In memory of this rank's device: see one_shot_control.
  const std::uint32_t* stop = nullptr;     ///< In pinned memory: not 0 once the communicator has failed.
  std::uint32_t* word = nullptr;           ///< In pinned memory. Null: nothing is written at the end.
  std::uint32_t value = 0;                 ///< What is written there after the last operation.
  std::uint8_t self = 0;
  std::uint8_t ranks = 0;
  std::uint8_t entry_count = 0;
  bool has_other_processes = false; ///< Some ranks are in other processes: the mock must poll for their stores.
  one_shot_shape shape{};
  std::uint16_t first_warps[Capacity] = {}; ///< one_shot_entry::first_warp of each, which a warp finds its entry by.
  one_shot_entry entries[Capacity] = {};
};

/// The words of one_shot_arguments::control.
struct one_shot_control {
  static constexpr unsigned sequences = 0; ///< The sequence of each block's next operation: one_shot_blocks words.
  static constexpr unsigned arrived =
      one_shot_blocks;                             ///< Blocks of the running kernel that are done; 0 between kernels.
  static constexpr unsigned aborted = arrived + 1; ///< Not 0 once a thread has seen the stop word set.
  static constexpr unsigned looked = aborted + 1;  ///< When a thread last looked at it; any value at first.
  static constexpr unsigned words = looked + 1;

  /// A bit of `arrived`, set for good when a block was aborted: the blocks of two launches, of each of which some were
  /// aborted, must not add up to a complete one.
  static constexpr std::uint32_t spoilt = 1U << 31U;
};

} // namespace troupe
