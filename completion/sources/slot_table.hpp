/// Words of pinned memory that GPUs write when an operation is done. They are allocated once, because pinned memory
/// cannot be allocated safely while operations are in flight (BUF-1).
#pragma once

#include <troupe/device/memory/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

class slot_table;

/// The word of one stream. It counts the stream's finished operations and contains a generation, so that a late write
/// by the previous stream of the word is never taken for progress of the current one.
class slot {
public:
  slot(std::uint32_t* word, std::uint8_t generation) noexcept : word_{word}, generation_{generation} {}

  [[nodiscard]] std::uint32_t* word() const noexcept { return word_; }
  /// Returns the value that the GPU writes when operation \p sequence (from 1) is done.
  [[nodiscard]] std::uint32_t value_for(std::uint64_t sequence) const noexcept;
  /// Returns whether operation \p sequence is done. Fewer than 2²³ operations may be in flight.
  [[nodiscard]] bool reached(std::uint64_t sequence) const noexcept;

private:
  std::uint32_t* word_;
  std::uint8_t generation_;
};

/// A fixed number of slots, each on its own cache line. Threads: all functions may be called from any thread.
class slot_table {
public:
  static constexpr std::size_t line_bytes = 64;

  slot_table(const std::shared_ptr<device>& where, std::size_t slot_count);

  /// Returns a slot of a new generation with no finished operations. Errors: out_of_memory if all slots are in use.
  [[nodiscard]] slot acquire();
  /// Returns a slot to the table. Call it only when the stream can no longer write to the slot. The slot of a hanging
  /// stream is never returned.
  void release(const slot& used) noexcept;

private:
  buffer memory_;
  std::mutex guard_;
  std::vector<std::size_t> free_;
  std::vector<std::uint8_t> generations_;
};

} // namespace troupe
