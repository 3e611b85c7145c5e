#include <troupe/program/demo/demo_batch.hpp>

#include <algorithm>
#include <iterator>

namespace troupe::program {

namespace {

constexpr dtype types[] = {dtype::u8,  dtype::i32, dtype::u32, dtype::i64, dtype::u64,
                           dtype::f16, dtype::f32, dtype::f64, dtype::bf16};
constexpr reduction reductions[] = {reduction::sum, reduction::min, reduction::max};

} // namespace

demo_batch::demo_batch(const world& where, const std::vector<rank>& ranks, std::size_t requests, std::size_t count,
                       std::uint64_t seed, std::shared_ptr<known_values> values)
  : world_size_{where.size()}, max_count_{count}, seed_{seed}, values_{std::move(values)}, requests_(requests) {
  const conform_range longest{.role = "longest", .values = {.type = dtype::f64}, .count = count};
  const std::size_t room = requests * 2 * conform_image::room_for(longest);
  for (const rank self : ranks) members_.push_back({self, {where, self, memory_kind::device, room}});
}

void demo_batch::fill(std::uint64_t round) {
  for (member& one : members_) {
    one.image.clear();
    one.placed.assign(size(), {});
  }
  for (std::size_t i = 0; i < size(); ++i) {
    // The shape must be the same for every rank's client, so it depends only on seed, round and index.
    const std::uint64_t drawn = scramble(seed_ ^ scramble(round ^ scramble(i)));
    draws draw{drawn};
    const value_source source{types[draw.below(std::size(types))], reductions[draw.below(std::size(reductions))],
                              value_kind::exact};
    const conform_piece piece = conform_collectives().front().make( // all_reduce
        {.ranks = world_size_, .values = source, .count = draw.below(max_count_ + 1), .seed = drawn});
    requests_[i].clear();
    for (member& one : members_)
      requests_[i].push_back(
          as_operation(part_of(piece, one.self, one.image.place(piece, one.self, *values_, one.placed[i]))));
  }
}

std::vector<demo_batch::ranked_operation> demo_batch::copies_in() const {
  std::vector<ranked_operation> copies;
  for (const member& one : members_) copies.emplace_back(one.self, one.image.upload());
  return copies;
}

std::vector<demo_batch::ranked_operation> demo_batch::copies_out() const {
  std::vector<ranked_operation> copies;
  for (const member& one : members_) copies.emplace_back(one.self, one.image.download());
  return copies;
}

std::size_t demo_batch::wrong_results() {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < size(); ++i)
    wrong += std::ranges::all_of(members_,
                                 [i](member& one) {
                                   return std::ranges::all_of(
                                       one.placed[i], [&](std::size_t at) { return one.image.find_fault(at).empty(); });
                                 })
                 ? 0
                 : 1;
  return wrong;
}

} // namespace troupe::program
