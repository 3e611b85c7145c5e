#include <troupe/completion/sources/slot_table.hpp>

#include <atomic>
#include <string>

namespace troupe {

namespace {

constexpr std::uint32_t sequence_bits = 24;
constexpr std::uint32_t sequence_mask = (1U << sequence_bits) - 1;
constexpr std::size_t words_per_line = slot_table::line_bytes / sizeof(std::uint32_t);

} // namespace

std::uint32_t slot::value_for(std::uint64_t sequence) const noexcept {
  return (std::uint32_t{generation_} << sequence_bits) | (static_cast<std::uint32_t>(sequence) & sequence_mask);
}

bool slot::reached(std::uint64_t sequence) const noexcept {
  const std::uint32_t seen = std::atomic_ref{*word_}.load(std::memory_order_acquire);
  if (seen >> sequence_bits != generation_) return false;
  // Cyclic comparison: the word may be ahead of \p sequence.
  return ((seen - static_cast<std::uint32_t>(sequence)) & sequence_mask) <= sequence_mask / 2;
}

slot_table::slot_table(const std::shared_ptr<device>& where, std::size_t slot_count)
  : memory_{allocate_pinned(where, slot_count * line_bytes)}, generations_(slot_count, 0) {
  free_.reserve(slot_count);
  for (std::size_t i = slot_count; i > 0; --i) free_.push_back(i - 1);
}

slot slot_table::acquire() {
  const std::lock_guard lock{guard_};
  if (free_.empty())
    throw exception{errc::out_of_memory,
                    "all " + std::to_string(generations_.size()) +
                        " completion slots of this runtime are in use: each rank of each world and sub-world holds one "
                        "until the world has stopped, and streams that hang keep theirs. Stop worlds that are no "
                        "longer needed, or use another runtime"};
  const std::size_t index = free_.back();
  free_.pop_back();
  const slot fresh{&memory_.host_span<std::uint32_t>()[index * words_per_line], ++generations_[index]};
  std::atomic_ref{*fresh.word()}.store(fresh.value_for(0), std::memory_order_release);
  return fresh;
}

void slot_table::release(const slot& used) noexcept {
  const std::lock_guard lock{guard_};
  const auto word = static_cast<std::size_t>(used.word() - memory_.host_span<std::uint32_t>().data());
  free_.push_back(word / words_per_line);
}

} // namespace troupe
