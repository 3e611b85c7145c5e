/// What a one-shot kernel is launched with: a table of operations, in the form in which CUDA's kernel and the mock's
/// read it.
#pragma once

#include <troupe/collectives/backend/one_shot/line_protocol.hpp>

#include <cstddef>
#include <cstdint>

namespace troupe {

inline constexpr unsigned one_shot_threads = 512; ///< The most threads of a block.
inline constexpr unsigned one_shot_blocks = 128;  ///< The most blocks of a launch.
inline constexpr unsigned one_shot_lines = 2;     ///< The most lines that a thread sends to each rank.
inline constexpr unsigned one_shot_entries = 64;  ///< The most operations of a launch.
inline constexpr unsigned one_shot_ranks = 8;

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
  std::uint16_t first_block = 0;
  std::uint16_t lines_per_block = 1; ///< In the last block fewer, if part_bytes says so; at least 1 in each.
  std::int8_t from = -1;             ///< The only rank that sends its part; -1: all do.
  std::int8_t to = -1;               ///< The only rank that gets parts; -1: all do.
  std::uint8_t type = 0;             ///< A dtype.
  std::uint8_t op = 0;               ///< A reduction.
  bool combines = false;             ///< The parts are combined by \p op. Otherwise each one is copied to its place.
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
  std::uint8_t entry_of[Capacity == 1 ? 1 : one_shot_blocks] = {}; ///< The entry of each block.
  one_shot_entry entries[Capacity] = {};
};

/// The words of one_shot_arguments::control.
struct one_shot_control {
  static constexpr unsigned sequences = 0; ///< The sequence of each block's next operation: one_shot_blocks words.
  static constexpr unsigned arrived =
      one_shot_blocks; ///< Blocks of the running kernel that are done; 0 between kernels.
  static constexpr unsigned words = arrived + 1;

  /// A bit of `arrived`, set for good when a block was aborted: the blocks of two launches, of each of which some were
  /// aborted, must not add up to a complete one.
  static constexpr std::uint32_t spoilt = 1U << 31U;
};

} // namespace troupe
