#include <troupe/collectives/backend/offset_allocator.hpp>

#include <iterator>

namespace troupe {

offset_allocator::offset_allocator(std::size_t size, std::size_t alignment)
  : size_{size - size % alignment}, alignment_{alignment}, free_{size_} {
  if (size_ > 0) gaps_.emplace(0, size_);
}

std::size_t offset_allocator::rounded(std::size_t length) const noexcept {
  return length > size_ ? length : (length + alignment_ - 1) / alignment_ * alignment_;
}

std::optional<std::size_t> offset_allocator::take(std::size_t length) {
  const std::size_t wanted = rounded(length);
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    const auto [offset, room] = *gap;
    if (room < wanted) continue;
    gaps_.erase(gap);
    if (room > wanted) gaps_.emplace(offset + wanted, room - wanted);
    free_ -= wanted;
    return offset;
  }
  return std::nullopt;
}

void offset_allocator::give_back(std::size_t offset, std::size_t length) {
  length = rounded(length);
  free_ += length;
  const auto after = gaps_.lower_bound(offset);
  if (after != gaps_.end() && after->first == offset + length) {
    length += after->second;
    gaps_.erase(after);
  }
  const auto before = gaps_.lower_bound(offset);
  if (before != gaps_.begin() && std::prev(before)->first + std::prev(before)->second == offset)
    std::prev(before)->second += length;
  else
    gaps_.emplace(offset, length);
}

} // namespace troupe
