#include "demo_batch.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

namespace troupe::program {

namespace {

std::uint64_t mix(std::uint64_t x) noexcept { // splitmix64
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

template <class T>
void store_as(std::byte* to, std::size_t value) noexcept {
  const auto converted = static_cast<T>(value);
  std::memcpy(to, &converted, sizeof converted);
}

/// Writes a whole number below 256, which every dtype holds exactly.
void store(std::byte* to, dtype type, std::size_t value) noexcept {
  switch (type) {
    case dtype::u8: return store_as<std::uint8_t>(to, value);
    case dtype::i32: return store_as<std::int32_t>(to, value);
    case dtype::i64: return store_as<std::int64_t>(to, value);
    case dtype::f32: return store_as<float>(to, value);
    case dtype::f64: return store_as<double>(to, value);
    case dtype::bf16: {
      const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16U);
      std::memcpy(to, &bits, sizeof bits);
      return;
    }
  }
}

} // namespace

demo_batch::demo_batch(const world& where, const std::vector<rank>& ranks, std::size_t requests, std::size_t count,
                       std::uint64_t seed)
  : world_size_{where.size()},
    stride_bytes_{count * sizeof(double)},
    seed_{seed},
    max_count_{count},
    shapes_(requests) {
  const std::size_t bytes = requests * stride_bytes_;
  for (const rank self : ranks)
    lanes_.push_back({self, where.allocate_pinned(bytes), where.allocate_pinned(bytes), where.allocate(self, bytes),
                      where.allocate(self, bytes)});
}

void demo_batch::fill(std::uint64_t round) {
  round_ = round;
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    // The shape must be the same for every rank's client, so it is drawn from seed, round and index alone.
    const std::uint64_t draw = mix(seed_ ^ mix(round ^ mix(i)));
    shapes_[i] = {.count = draw % (max_count_ + 1),
                  .type = all_dtypes[(draw >> 20U) % std::size(all_dtypes)],
                  .op = all_reductions[(draw >> 40U) % std::size(all_reductions)]};
    for (const lane& one : lanes_)
      for (std::size_t e = 0; e < shapes_[i].count; ++e)
        store(one.host_in.data() + offset_of(i) + e * size_bytes(shapes_[i].type), shapes_[i].type,
              value(i, e, one.self));
  }
  for (const lane& one : lanes_) std::memset(one.host_out.data(), 0xee, one.host_out.size_bytes());
}

std::vector<demo_batch::ranked_operation> demo_batch::copies_in() const {
  std::vector<ranked_operation> copies;
  for (const lane& one : lanes_) copies.emplace_back(one.self, copy{one.host_in, one.send});
  return copies;
}

std::vector<operation> demo_batch::request(std::size_t index) const {
  const shape& what = shapes_[index];
  std::vector<operation> parts;
  for (const lane& one : lanes_)
    parts.emplace_back(all_reduce{one.send.slice(offset_of(index), stride_bytes_),
                                  one.recv.slice(offset_of(index), stride_bytes_), what.count, what.type, what.op});
  return parts;
}

std::vector<demo_batch::ranked_operation> demo_batch::copies_out() const {
  std::vector<ranked_operation> copies;
  for (const lane& one : lanes_) copies.emplace_back(one.self, copy{one.recv, one.host_out});
  return copies;
}

std::size_t demo_batch::wrong_results() const {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    const shape& what = shapes_[i];
    const bool right = std::ranges::all_of(lanes_, [&](const lane& one) {
      const std::byte* at = one.host_out.data() + offset_of(i);
      for (std::size_t e = 0; e < what.count; ++e, at += size_bytes(what.type)) {
        std::byte wanted[sizeof(double)];
        store(wanted, what.type, expected(i, e));
        if (std::memcmp(at, wanted, size_bytes(what.type)) != 0) return false;
      }
      return true;
    });
    wrong += right ? 0 : 1;
  }
  return wrong;
}

std::size_t demo_batch::value(std::size_t request, std::size_t element, rank self) const noexcept {
  // Small enough that a sum over all ranks stays below 256: exact in every dtype, bf16 and u8 included.
  const std::size_t limit = std::max<std::size_t>(2, 256U / static_cast<std::size_t>(world_size_));
  return mix(seed_ ^ mix(round_ * 31 + request) ^ mix(element * 64 + static_cast<std::size_t>(self.value()))) % limit;
}

std::size_t demo_batch::expected(std::size_t request, std::size_t element) const noexcept {
  std::size_t result = value(request, element, rank{0});
  for (int r = 1; r < world_size_; ++r) {
    const std::size_t other = value(request, element, rank{r});
    switch (shapes_[request].op) {
      case reduction::sum: result += other; break;
      case reduction::min: result = std::min(result, other); break;
      case reduction::max: result = std::max(result, other); break;
    }
  }
  return result;
}

} // namespace troupe::program
