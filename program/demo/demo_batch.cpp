#include <troupe/program/demo/demo_batch.hpp>
#include <troupe/program/support/elements.hpp>

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

/// The dtypes that represent every whole number below 256, which sums do not exceed.
constexpr dtype types[] = {dtype::u8,  dtype::i32, dtype::u32, dtype::i64, dtype::u64,
                           dtype::f16, dtype::f32, dtype::f64, dtype::bf16};
constexpr reduction reductions[] = {reduction::sum, reduction::min, reduction::max};

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
    // The shape must be the same for every rank's client, so it depends only on seed, round and index.
    const std::uint64_t draw = mix(seed_ ^ mix(round ^ mix(i)));
    shapes_[i] = {.count = draw % (max_count_ + 1),
                  .type = types[(draw >> 20U) % std::size(types)],
                  .op = reductions[(draw >> 40U) % std::size(reductions)]};
    for (const lane& one : lanes_)
      for (std::size_t e = 0; e < shapes_[i].count; ++e)
        store_element(one.host_in.data() + offset_of(i) + e * size_bytes(shapes_[i].type), shapes_[i].type,
                      static_cast<double>(value(i, e, one.self)));
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
        store_element(wanted, what.type, static_cast<double>(expected(i, e)));
        if (std::memcmp(at, wanted, size_bytes(what.type)) != 0) return false;
      }
      return true;
    });
    wrong += right ? 0 : 1;
  }
  return wrong;
}

std::size_t demo_batch::value(std::size_t request, std::size_t element, rank self) const noexcept {
  // Small enough that a sum over all ranks stays below 256, which is exact in every dtype, including bf16 and u8.
  const std::size_t limit = std::max<std::size_t>(2, 256U / static_cast<std::size_t>(world_size_));
  return mix(seed_ ^ mix(round_ * 31 + request) ^ mix(element * 64 + static_cast<std::size_t>(self.value()))) % limit;
}

std::size_t demo_batch::expected(std::size_t request, std::size_t element) const noexcept {
  std::size_t result = value(request, element, rank{0});
  for (int r = 1; r < world_size_; ++r) {
    const std::size_t other = value(request, element, rank{r});
    const reduction op = shapes_[request].op;
    result = op == reduction::sum   ? result + other
             : op == reduction::min ? std::min(result, other)
                                    : std::max(result, other);
  }
  return result;
}

} // namespace troupe::program
