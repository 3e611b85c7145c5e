#include <troupe/collectives/backend/mock/mock_reduce.hpp>
#include <troupe/collectives/backend/solo_scale.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

namespace troupe {

namespace {

constexpr std::size_t factor_bytes = 8;
constexpr std::size_t piece_bytes = std::size_t{4} << 20U;

/// The argument of one host function, which deletes it. If the stream fails, the function never runs and the object
/// leaks.
struct piece {
  buffer memory;
  std::size_t count = 0;
  dtype type{};
  std::array<std::byte, factor_bytes> by{};
  bool by_is_in_memory = false;
};

void multiply(void* argument) {
  const std::unique_ptr<piece> mine{static_cast<piece*>(argument)};
  std::byte* const values = mine->memory.data() + factor_bytes;
  reduce_part part{.send = values, .recv = values, .factor = mine->by};
  if (mine->by_is_in_memory) std::memcpy(part.factor.data(), mine->memory.data(), factor_bytes);
  reduce_parts({&part, 1}, mine->count, mine->type, reduction::pre_mul_sum);
}

} // namespace

void solo_scale::enqueue(std::byte* to, const std::byte* from, std::size_t count, dtype type, const factor& by,
                         stream_ref stream) {
  const std::size_t width = size_bytes(type);
  if (!scratch_) scratch_ = allocate_pinned(device_, factor_bytes + piece_bytes);
  const bool on_device = static_cast<bool>(by.memory);
  if (on_device) stream.copy(scratch_.data(), by.memory.data(), width);
  for (std::size_t first = 0; first < count; first += piece_bytes / width) {
    const std::size_t now = std::min(count - first, piece_bytes / width);
    std::byte* const values = scratch_.data() + factor_bytes;
    stream.copy(values, from + first * width, now * width);
    auto work = std::make_unique<piece>(piece{scratch_, now, type, by.value, on_device});
    device_->api().call(device_->id(), stream.native(), multiply, work.get());
    static_cast<void>(work.release());
    stream.copy(to + first * width, values, now * width);
  }
}

} // namespace troupe
