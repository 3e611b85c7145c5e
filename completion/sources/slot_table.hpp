/// Words of pinned memory that GPUs write when they are done. Made once, because pinned memory cannot be allocated
/// safely while operations are in flight (BUF-1).
#pragma once

#include <troupe/device/memory/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

class slot_table;

/// One stream's word. It counts the stream's finished operations and carries a generation, so that a late write of
/// the word's former stream is never taken for progress of the present one.
class slot {
public:
  slot(std::uint32_t* word, std::uint8_t generation) noexcept : word_{word}, generation_{generation} {}

  [[nodiscard]] std::uint32_t* word() const noexcept { return word_; }
  /// What the GPU writes when operation \p sequence (from 1) is done.
  [[nodiscard]] std::uint32_t value_for(std::uint64_t sequence) const noexcept;
  /// Whether operation \p sequence is done. Fewer than 2²³ operations may be in flight.
  [[nodiscard]] bool reached(std::uint64_t sequence) const noexcept;

private:
  std::uint32_t* word_;
  std::uint8_t generation_;
};

/// A fixed number of slots, each on a cache line of its own. Threads: safe from any.
class slot_table {
public:
  static constexpr std::size_t line_bytes = 64;

  slot_table(const std::shared_ptr<device>& where, std::size_t slot_count);

  /// A slot of a new generation with nothing done. Errors: out_of_memory when all are taken.
  [[nodiscard]] slot acquire();
  /// Gives a slot back. Only when its stream can no longer write to it; a slot of a stuck stream is never given back.
  void release(const slot& used) noexcept;

private:
  buffer memory_;
  std::mutex guard_;
  std::vector<std::size_t> free_;
  std::vector<std::uint8_t> generations_;
};

} // namespace troupe
