#include <troupe/testing/simulation/simulated_memory.hpp>

#include <algorithm>
#include <span>

namespace troupe::simulation {

namespace {

constexpr std::uint64_t rubbish = 0xDDDDDDDDDDDDDDDDU;
/// A plan is captured again in each epoch of its world, and a capture may fail.
constexpr std::size_t sets_of_a_plan = 8;

} // namespace

simulated_memory::simulated_memory(const scenario& of, const std::vector<std::shared_ptr<device>>& devices)
  : of_{of}, devices_{devices}, places_(devices.size()), requests_(devices.size()) {
  for (std::size_t r = 0; r < devices.size(); ++r) {
    const rank self{static_cast<int>(r)};
    const auto sets = [](const planned_request& one) {
      return one.what == operation_kind::capture ? sets_of_a_plan : std::size_t{1};
    };
    std::size_t total = 0;
    for (const planned_request& one : of.requests) {
      const shape needed = most_of(one);
      total += sets(one) * (needed.sent + needed.received);
    }
    storage_.push_back(memory_pool::create(devices[r])->allocate(total * element_bytes));
    std::byte* next = storage_.back().data();
    const auto take = [&](std::size_t count) {
      std::byte* const first = next;
      next += count * element_bytes;
      return count == 0 ? nullptr : first;
    };
    for (const planned_request& one : of.requests)
      for (std::size_t i = 0; i < sets(one); ++i) {
        place mine{.size = most_of(one)};
        mine.sent = take(mine.size.sent);
        mine.received = take(mine.size.received);
        fill(one, self, mine);
        places_[r][one.number] = {};
        if (one.what != operation_kind::capture) {
          places_[r][one.number] = mine;
          continue;
        }
        plans_[one.number].resize(devices.size());
        plan_of(one.number, self).sets.push_back(mine);
      }
  }
}

/// Writes the inputs and marks the outputs as not written.
void simulated_memory::fill(const planned_request& what, rank self, const place& on) {
  auto& known = requests_[static_cast<std::size_t>(self.value())];
  for (std::size_t i = 0; i < on.size.sent; ++i) elements(on.sent, on.size.sent)[i] = value(what.number, self, i);
  for (auto& element : elements(on.received, on.size.received)) element = unwritten;
  const std::size_t name = what.what == operation_kind::replay ? what.source.value_or(what.number) : what.number;
  if (on.sent != nullptr) known[on.sent] = name;
  if (on.received != nullptr) known[on.received] = name;
}

void simulated_memory::ask_among(const planned_request& request, std::vector<rank> ranks, epoch now) {
  enter_registered(request, ranks);
  rosters_[request.number] = std::move(ranks);
  asked_in_[request.number] = now;
}

bool simulated_memory::takes_part(const planned_request& what, rank self) const {
  if (what.what != operation_kind::transfer) return true;
  const shape mine = shape_of(what, self, participants_of(what, self));
  return mine.sent + mine.received > 0;
}

std::size_t simulated_memory::participants::index_of(rank self) const {
  return static_cast<std::size_t>(std::ranges::find(ranks, self) - ranks.begin());
}

rank simulated_memory::participants::after(rank self) const {
  return ranks[(index_of(self) + 1) % ranks.size()];
}

rank simulated_memory::participants::before(rank self) const {
  return ranks[(index_of(self) + ranks.size() - 1) % ranks.size()];
}

bool simulated_memory::is_among(const planned_request& what, rank self) const {
  const auto found = rosters_.find(what.number);
  return found == rosters_.end() || std::ranges::find(found->second, self) != found->second.end();
}

simulated_memory::participants simulated_memory::participants_of(const planned_request& what, rank self) const {
  participants made{.ranks = {}, .root = what.root, .root_here = what.root};
  if (const auto found = rosters_.find(what.number); found != rosters_.end() && is_among(what, self)) {
    made.ranks = found->second;
    if (!is_among(what, what.root))
      made.root = made.ranks[static_cast<std::size_t>(what.root.value()) % made.ranks.size()];
    made.root_here = rank{static_cast<int>(made.index_of(made.root))};
    return made;
  }
  for (int r = 0; r < of_.ranks; ++r) made.ranks.emplace_back(r);
  return made;
}

simulated_memory::shape simulated_memory::shape_of(const planned_request& what, rank self, const participants& all) {
  const std::size_t n = all.ranks.size();
  const bool root = self == all.root;
  switch (what.what) {
    case operation_kind::group:
    case operation_kind::all_reduce: return {what.count, what.count};
    case operation_kind::broadcast: return {root ? what.count : 0, what.count};
    case operation_kind::reduce: return {what.count, root ? what.count : 0};
    case operation_kind::all_gather: return {what.count, n * what.count};
    case operation_kind::reduce_scatter: return {n * what.count, what.count};
    case operation_kind::all_to_all: return {n * what.count, n * what.count};
    case operation_kind::exchange: return {what.count, what.count};
    case operation_kind::copy: return {0, what.count}; // it reads another rank's memory
    case operation_kind::transfer:
      if (n == 1) return {};
      return {root ? what.count : 0, self == all.after(all.root) ? what.count : 0};
    case operation_kind::capture:
    case operation_kind::replay: return {what.count, 2 * what.count};
    case operation_kind::barrier:
    case operation_kind::agree:
    case operation_kind::registration: return {};
  }
  return {};
}

simulated_memory::shape simulated_memory::most_of(const planned_request& what) const {
  if (what.what == operation_kind::replay) return {}; // it uses its plan's memory
  if (what.what == operation_kind::broadcast || what.what == operation_kind::reduce ||
      what.what == operation_kind::transfer || what.what == operation_kind::copy)
    return {what.count, what.count};
  participants all{.ranks = std::vector<rank>(static_cast<std::size_t>(of_.ranks)), .root = {}, .root_here = {}};
  return shape_of(what, rank{0}, all);
}

std::uint64_t simulated_memory::value(std::size_t request, rank of, std::size_t at) const noexcept {
  return mix(of_.seed, request, static_cast<std::uint64_t>(of.value()) * 1'000'003U + at);
}

std::uint64_t simulated_memory::expected(const planned_request& what, rank self, std::size_t at,
                                         const participants& all) const {
  const auto sum = [&](std::size_t element) {
    std::uint64_t total = 0;
    for (const rank one : all.ranks) total += value(what.number, one, element);
    return total;
  };
  const std::size_t mine = all.index_of(self) * what.count;
  const auto maker = [&] { return all.ranks[at / what.count]; };
  switch (what.what) {
    case operation_kind::group:
    case operation_kind::all_reduce:
    case operation_kind::reduce: return sum(at);
    case operation_kind::broadcast: return value(what.number, all.root, at);
    case operation_kind::all_gather: return value(what.number, maker(), at % what.count);
    case operation_kind::reduce_scatter: return sum(mine + at);
    case operation_kind::all_to_all: return value(what.number, maker(), mine + at % what.count);
    case operation_kind::exchange:
    case operation_kind::copy: return value(what.number, all.before(self), at);
    case operation_kind::transfer: return value(what.number, all.root, at);
    case operation_kind::replay: return sum(at % what.count);
    case operation_kind::barrier:
    case operation_kind::agree:
    case operation_kind::registration:
    case operation_kind::capture: break;
  }
  return 0;
}

std::span<std::uint64_t> simulated_memory::results_of(const planned_request& what, rank self) const {
  const place& mine = place_of(what, self);
  const std::size_t size = is_among(what, self) ? shape_of(what, self, participants_of(what, self)).received : 0;
  return elements(mine.received, mine.size.received).first(size);
}

bool simulated_memory::is_listed(const planned_request& what, rank self, const undefined_buffers& all) const {
  for (auto& element : results_of(what, self))
    if (std::ranges::none_of(all, [&](const undefined_buffer& one) {
          const auto* const first = static_cast<const std::byte*>(one.address);
          const auto* const at = reinterpret_cast<const std::byte*>(&element);
          return at >= first && at < first + one.size_bytes; // the address identifies the rank
        }))
      return false;
  return true;
}

void simulated_memory::spoil(const planned_request& what, rank self) const {
  if (frozen_.contains(what.number)) return;
  for (auto& element : results_of(what, self)) element = rubbish;
}

simulated_memory::finding simulated_memory::inspect(const planned_request& what, rank self) const {
  const auto frozen = frozen_.find(what.number);
  return frozen == frozen_.end() ? look_now(what, self) : frozen->second[static_cast<std::size_t>(self.value())];
}

simulated_memory::finding simulated_memory::look_now(const planned_request& what, rank self) const {
  const place& mine = place_of(what, self);
  if (mine.size.received == 0) return finding::nothing;
  const auto memory = elements(mine.received, mine.size.received);
  const bool untouched = std::ranges::all_of(memory, [](std::uint64_t one) { return one == unwritten; });
  if (!is_among(what, self)) return untouched ? finding::nothing : finding::wrong;
  const participants all = participants_of(what, self);
  const std::size_t size = shape_of(what, self, all).received;
  if (size == 0) return untouched ? finding::nothing : finding::wrong;
  bool right = true;
  for (std::size_t i = 0; i < memory.size(); ++i)
    right = right && memory[i] == (i < size ? expected(what, self, i, all) : unwritten);
  if (right) return finding::right;
  return untouched ? finding::untouched : finding::wrong;
}

} // namespace troupe::simulation
