/// The protocol of one-shot collectives inside a node: each rank stores its payload, together with flags, straight into
/// its peers' memory, and each reader polls its own. The accesses to memory are a template parameter: a CUDA kernel,
/// the mock and tests that enumerate all interleavings run the same functions (docs/design/0104-one-shot-lines.md).
///
/// Each rank has a scratch memory that its peers map, zeroed when the communicator is formed. It consists of lines of
/// 16 bytes. A line has two halves, each one 64-bit word: 32 bits of payload (low) and 32 bits of flag (high). A half
/// is stored by one 64-bit access and loaded by one, so its payload arrives with its flag, and no fence is needed
/// between them. The two halves of a line are independent: PTX promises no more for a vector of two words.
///
/// A thread block owns the lines (buffer, every source, block) of its rank's scratch and has a sequence number of its
/// own, kept in its rank's device memory. Blocks of the same number of all ranks exchange lines with each other only.
///
/// An operation with sequence s, in each block (record 0104 has the accesses as a table):
/// - B1 Load the block's sequence s (weak). If it is 0, an earlier operation was aborted: end.
/// - B2 Store lines to every peer: buffer s & 1, source self, flag s (relaxed, system scope, 64 bits each).
/// - B3 Poll the lines of every source until all flags are s (relaxed, system scope, 64 bits each). Now and then look
///   at the abort word in host memory (relaxed, system scope).
/// - B4 Block barrier: have all threads received everything?
/// - B5 In the last two sequences before the wrap, all threads: clear the buffer's lines (weak).
/// - B6 One thread: if all have received everything, store the next sequence, else 0, and complete nothing (weak).
///
/// Rules that callers keep:
/// - R1 In each operation, each rank sends at least one line to each peer, and receives every line that it is sent. A
///   rank without payload for a peer sends an empty line (line_count_of()). So a rank that has completed s knows that
///   every peer has begun s, hence has completed s - 1 and reads no line of s - 1 any more.
/// - R2 Kernels of a communicator run one after the other: all accesses of one are performed at system scope before the
///   first of the next (stream order; no programmatic dependent launch before B1). This orders B5 and B6 before what
///   the next kernel loads and stores.
/// - R3 The launch geometry of an operation, and so the blocks that take part in it, is the same at all ranks.
/// - R4 A launch is complete when all its blocks have received everything. Where blocks are counted, an aborted one
///   spoils the counts of later launches, too: else the blocks of two aborted launches add up to a complete one.
///
/// Why two buffers suffice: a rank stores lines of s into the buffer that s - 2 used. It begins s when it has completed
/// s - 1, so by R1 every peer has completed s - 2 and reads none of its lines any more.
///
/// The wrap: flags of 32 bits repeat. After 0xFFFFFFFF comes 2, because 0 is the flag of a zeroed line and 1 would use
/// the buffer of 0xFFFFFFFF again. A line that was last written in the previous cycle must not match, so the last
/// operation in each buffer before the wrap clears that buffer (B5). It does so when it has received all lines of the
/// operation, so by R1 no store to the buffer is on its way. The next store to it belongs to s + 2, before which its
/// sender has received this rank's lines of s + 1, which this rank sends after the clearing kernel has ended.
///
/// Abort: a block that sees the abort word in B3 stores no more. Its operation did not complete, so its peers may still
/// be in it; lines of a later operation must not carry its sequence, nor may a later operation complete. So its
/// sequence becomes 0, and queued kernels end in B1 without a store. The abort word is in host memory, a load of which
/// takes about a microsecond: it is not looked at before B2. A queued kernel whose predecessors have all completed
/// behaves as if it had begun before the abort: it stores right lines with the right flags, then ends in B3.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define TROUPE_HOST_DEVICE __host__ __device__
#else
#define TROUPE_HOST_DEVICE
#endif

namespace troupe {

constexpr std::uint32_t ended_sequence = 0; ///< Of a block whose operation was aborted. No operation has it.
constexpr std::uint32_t last_sequence = 0xFFFFFFFF;

/// Returns the sequence of the operation after the one with \p sequence. The buffers alternate over the wrap, too.
[[nodiscard]] TROUPE_HOST_DEVICE constexpr std::uint32_t next_sequence(std::uint32_t sequence) noexcept {
  return sequence == last_sequence ? 2 : sequence + 1;
}

/// Returns the buffer that the operation with \p sequence uses.
[[nodiscard]] TROUPE_HOST_DEVICE constexpr std::uint32_t buffer_of(std::uint32_t sequence) noexcept {
  return sequence & 1U;
}

/// Returns whether the operation with \p sequence is the last one in its buffer before the wrap.
[[nodiscard]] TROUPE_HOST_DEVICE constexpr bool is_before_wrap(std::uint32_t sequence) noexcept {
  return sequence >= last_sequence - 1;
}

/// A line: two words of flag and payload.
struct line_halves {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
};

constexpr std::size_t line_bytes = sizeof(line_halves);
constexpr std::size_t line_payload_bytes = 8;

/// Returns the lines that carry this many bytes of payload: at least one (R1).
[[nodiscard]] TROUPE_HOST_DEVICE constexpr std::uint32_t line_count_of(std::size_t payload_bytes) noexcept {
  return payload_bytes == 0 ? 1 : static_cast<std::uint32_t>((payload_bytes - 1) / line_payload_bytes + 1);
}

/// Returns the line that carries \p payload in the operation with \p sequence.
[[nodiscard]] TROUPE_HOST_DEVICE constexpr line_halves line_of(std::uint64_t payload, std::uint32_t sequence) noexcept {
  const std::uint64_t flag = std::uint64_t{sequence} << 32U;
  return {.first = flag | (payload & 0xFFFFFFFFU), .second = flag | payload >> 32U};
}

/// Returns whether both halves of \p line belong to the operation with \p sequence.
[[nodiscard]] TROUPE_HOST_DEVICE constexpr bool has_arrived(const line_halves& line, std::uint32_t sequence) noexcept {
  return static_cast<std::uint32_t>(line.first >> 32U) == sequence &&
         static_cast<std::uint32_t>(line.second >> 32U) == sequence;
}

/// Returns the payload of a line that has arrived.
[[nodiscard]] TROUPE_HOST_DEVICE constexpr std::uint64_t payload_of(const line_halves& line) noexcept {
  return line.second << 32U | (line.first & 0xFFFFFFFFU);
}

/// Where the lines of a rank's scratch are: in the order buffer, source, block, line. The same at all ranks.
struct line_layout {
  std::uint32_t ranks = 0;
  std::uint32_t blocks = 0;          ///< Of the largest launch.
  std::uint32_t lines_per_block = 0; ///< From one source in one operation, at most.

  /// Returns the lines of a scratch. The numbers of lines must fit into 32 bits.
  [[nodiscard]] TROUPE_HOST_DEVICE constexpr std::uint64_t line_count() const noexcept {
    return std::uint64_t{2} * ranks * blocks * lines_per_block;
  }
  [[nodiscard]] TROUPE_HOST_DEVICE constexpr std::uint64_t scratch_bytes() const noexcept {
    return line_count() * line_bytes;
  }
  /// Returns the lines from one source to the next, for the same buffer, block and line.
  [[nodiscard]] TROUPE_HOST_DEVICE constexpr std::uint32_t source_stride() const noexcept {
    return blocks * lines_per_block;
  }
};

/// The part of one block in one operation: its sequence, and where its lines are in every rank's scratch. A thread
/// computes it once.
struct line_operation {
  std::uint32_t sequence = ended_sequence;
  std::uint32_t first_line = 0; ///< From source 0.
  std::uint32_t source_stride = 0;

  /// Returns whether an earlier operation of the block was aborted: the block stores nothing and ends.
  [[nodiscard]] TROUPE_HOST_DEVICE constexpr bool is_ended() const noexcept { return sequence == ended_sequence; }
  /// Returns the position, in a scratch, of line \p index of those that \p source sends to this block.
  [[nodiscard]] TROUPE_HOST_DEVICE constexpr std::uint32_t line(std::uint32_t source,
                                                                std::uint32_t index) const noexcept {
    return first_line + source * source_stride + index;
  }
};

// Memory is a class with these members, which are const if it is passed as const, as a kernel passes its
// __grid_constant__ parameter. Lines are numbered as by line_operation::line().
//   void store_line(std::uint32_t peer, std::uint32_t line, line_halves)  into the scratch of \p peer
//   line_halves load_line(std::uint32_t line)                             from the own scratch
//   void clear_line(std::uint32_t line)                                   stores zeros into the own scratch
//   std::uint32_t load_sequence(std::uint32_t block)
//   void store_sequence(std::uint32_t block, std::uint32_t sequence)
//   bool is_aborted()                                                     loads the abort word
//   static constexpr std::uint32_t polls_per_look                         polls between two looks at the abort word
// store_line and load_line are two relaxed 64-bit accesses at system scope, in any order: in PTX one .v2.b64
// instruction.

/// B1: every thread of the block calls this first.
template <class Memory>
[[nodiscard]] TROUPE_HOST_DEVICE line_operation begin_operation(Memory& memory, const line_layout& layout,
                                                                std::uint32_t block) {
  const std::uint32_t sequence = memory.load_sequence(block);
  const std::uint32_t stride = layout.source_stride();
  return {.sequence = sequence,
          .first_line = buffer_of(sequence) * layout.ranks * stride + block * layout.lines_per_block,
          .source_stride = stride};
}

/// B2: stores one line of rank \p self into the scratch of \p peer.
template <class Memory>
TROUPE_HOST_DEVICE void send_line(Memory& memory, const line_operation& now, std::uint32_t self, std::uint32_t peer,
                                  std::uint32_t index, std::uint64_t payload) {
  memory.store_line(peer, now.line(self, index), line_of(payload, now.sequence));
}

/// B3: polls these lines of the own scratch, as line_operation::line() numbers them, until all have arrived. The loads
/// of one round do not wait for each other. Returns false when the operation is aborted: the payloads are undefined.
template <std::uint32_t Count, class Memory>
[[nodiscard]] TROUPE_HOST_DEVICE bool receive_lines(Memory& memory, const line_operation& now,
                                                    const std::uint32_t (&lines)[Count],
                                                    std::uint64_t (&payloads)[Count]) {
  for (std::uint32_t polls = 1;; ++polls) {
    bool have_arrived = true;
    line_halves got[Count];
    for (std::uint32_t i = 0; i < Count; ++i) got[i] = memory.load_line(lines[i]);
    for (std::uint32_t i = 0; i < Count; ++i) {
      have_arrived = have_arrived && has_arrived(got[i], now.sequence);
      payloads[i] = payload_of(got[i]);
    }
    if (have_arrived) return true;
    if (polls % Memory::polls_per_look == 0 && memory.is_aborted()) return false;
  }
}

/// B5 and B6: every thread of the block calls this last, behind a block barrier that all have reached after their last
/// receive. \p has_received says whether all threads of the block have received everything (__syncthreads_and()).
/// If not, nothing of this operation is reported as complete.
template <class Memory>
TROUPE_HOST_DEVICE void end_operation(Memory& memory, const line_layout& layout, const line_operation& now,
                                      std::uint32_t block, bool has_received, std::uint32_t thread,
                                      std::uint32_t threads) {
  if (is_before_wrap(now.sequence))
    for (std::uint32_t source = 0; source < layout.ranks; ++source)
      for (std::uint32_t index = thread; index < layout.lines_per_block; index += threads)
        memory.clear_line(now.line(source, index));
  if (thread == 0) memory.store_sequence(block, has_received ? next_sequence(now.sequence) : ended_sequence);
}

} // namespace troupe
