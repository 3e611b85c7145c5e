#include <troupe/collectives/backend/registered_pool.hpp>

#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/memory/memory_pool.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {

namespace {

class pooled_region final : public registered_region {
public:
  pooled_region(const std::shared_ptr<device>& where, buffer memory, std::string why_ordinary)
    : registered_region{where, memory.data(), memory.size_bytes()}, memory_{std::move(memory)} {
    ordinary(std::move(why_ordinary));
  }

private:
  buffer memory_;
};

} // namespace

std::shared_ptr<registered_region> make_pooled_region(const std::shared_ptr<device>& where, std::size_t size_bytes,
                                                      std::string why_ordinary) {
  return std::make_shared<pooled_region>(where, memory_pool::create(where)->allocate(size_bytes),
                                         std::move(why_ordinary));
}

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

namespace {

constexpr std::size_t alignment = 256;

} // namespace

class registered_pool::block final : public memory_block {
public:
  /// Shared by the blocks of one allocate(). Its destructor frees their range.
  struct share {
    share(std::shared_ptr<registered_pool> from, room what) : pool{std::move(from)}, taken{std::move(what)} {}
    share(const share&) = delete;
    share& operator=(const share&) = delete;
    ~share() { pool->give_back(taken); }

    std::shared_ptr<registered_pool> pool;
    std::mutex mutex;
    room taken;
  };

  block(const registered_region& region, std::size_t offset, std::size_t length, std::shared_ptr<share> mine)
    : memory_block{region.where(), memory_kind::device, region.address() + offset, length}, mine_{std::move(mine)} {}

  void note_use(stream_ref stream) override {
    event mark = event_behind(stream);
    const std::lock_guard lock{mine_->mutex};
    mine_->taken.uses.push_back(std::move(mark));
  }

private:
  std::shared_ptr<share> mine_;
};

registered_pool::registered_pool(std::vector<std::shared_ptr<registered_region>> regions, bool alone)
  : regions_{std::move(regions)},
    alone_{alone},
    present_{regions_},
    offsets_{regions_.front()->size_bytes(), alignment} {}

std::vector<std::shared_ptr<registered_region>> registered_pool::regions() const {
  const std::lock_guard lock{mutex_};
  return present_;
}

void registered_pool::leave_out(std::span<const std::size_t> places) {
  const std::lock_guard lock{mutex_};
  std::vector<std::shared_ptr<registered_region>> left;
  for (std::size_t i = 0; i < present_.size(); ++i)
    if (std::ranges::find(places, i) == places.end()) left.push_back(present_[i]);
  present_ = std::move(left);
}

std::vector<buffer> registered_pool::allocate(std::size_t size_bytes) {
  std::optional<std::size_t> offset;
  std::vector<std::shared_ptr<registered_region>> on;
  {
    const std::lock_guard lock{mutex_};
    on = present_;
    reclaim();
    offset = offsets_.take(std::max<std::size_t>(size_bytes, 1));
    if (!offset)
      throw exception{errc::out_of_memory, "no " + std::to_string(size_bytes) +
                                               " contiguous bytes are free: " + std::to_string(offsets_.free()) +
                                               " bytes are free in all, of " + std::to_string(offsets_.size()) +
                                               " registered. Free some, or register more at the start"};
  }
  const auto share =
      std::make_shared<block::share>(shared_from_this(), room{*offset, std::max<std::size_t>(size_bytes, 1), {}});
  std::vector<buffer> made;
  made.reserve(on.size());
  for (const auto& region : on) made.emplace_back(std::make_shared<block>(*region, *offset, size_bytes, share));
  return made;
}

void registered_pool::give_back(room& left) noexcept {
  return_or_report("registered memory", [&] {
    const std::lock_guard lock{mutex_};
    if (alone_) retired_.push_back(std::move(left));
  });
}

void registered_pool::reclaim() {
  // All are checked before one is given back, because reached() throws on a failed device.
  const auto first_finished = std::partition(retired_.begin(), retired_.end(), [](const room& one) {
    return !std::ranges::all_of(one.uses, &event::reached);
  });
  for (auto left = retired_.end() - first_finished; left > 0; --left) {
    const room gone = std::move(retired_.back());
    retired_.pop_back(); // before its range is given back, so that nothing is given back twice
    offsets_.give_back(gone.offset, gone.length);
  }
}

std::size_t registered_pool::free_bytes() const {
  const std::lock_guard lock{mutex_};
  std::size_t waiting = 0;
  for (const room& one : retired_) waiting += (one.length + alignment - 1) / alignment * alignment;
  return offsets_.free() + waiting;
}

std::optional<std::size_t> registered_pool::offset_of(const buffer& memory) const noexcept {
  for (const auto& region : regions_) {
    const std::byte* const address = memory.data();
    if (address >= region->address() && address < region->address() + region->size_bytes())
      return static_cast<std::size_t>(address - region->address());
  }
  return std::nullopt;
}

namespace {

/// The placement of one operation's buffers. An offset is set only if peers compute addresses from it: the kernels of
/// an all_gather write into the peers' recv, those of a reduce_scatter read the peers' send, and those of an all_reduce
/// do both.
struct places {
  bool send_registered = false;
  bool recv_registered = false;
  std::optional<std::size_t> send{};
  std::optional<std::size_t> recv{};
  friend bool operator==(const places&, const places&) = default;
};

std::string name_of_place(const std::string& role, bool registered, const std::optional<std::size_t>& offset) {
  if (!registered) return role + " in ordinary memory";
  return role + (offset ? " at registered offset " + std::to_string(*offset) : " in registered memory");
}

std::vector<places> places_of(const operation& what, const registered_pool& pool) {
  if (const auto* several = std::get_if<group>(&what)) {
    std::vector<places> all;
    for (const operation& part : several->parts)
      for (places& one : places_of(part, pool)) all.push_back(one);
    return all;
  }
  const auto find = [&](const operand& send, const operand& recv, bool sends_must_match, bool recvs_must_match) {
    const auto from = pool.offset_of(send.memory);
    const auto to = pool.offset_of(recv.memory);
    return std::vector<places>{{from.has_value(), to.has_value(), sends_must_match ? from : std::nullopt,
                                recvs_must_match ? to : std::nullopt}};
  };
  if (const auto* one = std::get_if<all_reduce>(&what)) return find(one->send, one->recv, true, true);
  if (const auto* one = std::get_if<all_gather>(&what)) return find(one->send, one->recv, false, true);
  if (const auto* one = std::get_if<reduce_scatter>(&what)) return find(one->send, one->recv, true, false);
  return {};
}

} // namespace

error check_places(std::span<const operation> parts, const registered_pool& pool) {
  return check_places(pointers_to(parts), pool);
}

error check_places(std::span<const operation* const> parts, const registered_pool& pool) {
  const auto first = places_of(*parts.front(), pool);
  for (std::size_t r = 1; r < parts.size(); ++r) {
    const auto mine = places_of(*parts[r], pool);
    for (std::size_t i = 0; i < std::min(first.size(), mine.size()); ++i) {
      if (first[i] == mine[i]) continue;
      const auto describe = [](const places& it) {
        return name_of_place("send", it.send_registered, it.send) + " and " +
               name_of_place("recv", it.recv_registered, it.recv);
      };
      return error{.code = errc::mismatch,
                   .text = "the ranks disagree about registered memory: rank 0 has " + describe(first[i]) + ", rank " +
                           std::to_string(r) + " has " + describe(mine[i]) +
                           ": give every rank its buffer of the same allocation"};
    }
  }
  return {};
}

std::uint64_t digest_of_places(const operation& what, std::span<const std::shared_ptr<registered_pool>> pools) {
  std::uint64_t digest = 0xCBF29CE484222325U;
  bool is_registered = false;
  const auto mix = [&](std::uint64_t value) {
    digest = (digest ^ value) * 0x100000001B3U;
    digest ^= digest >> 32U;
  };
  for (std::size_t i = 0; i < pools.size(); ++i) {
    const std::size_t size = pools[i]->size_bytes();
    const auto before =
        std::ranges::count_if(pools.first(i), [&](const auto& one) { return one->size_bytes() == size; });
    for (const places& one : places_of(what, *pools[i])) {
      const std::uint64_t flags = (one.send_registered ? 1U : 0U) | (one.recv_registered ? 2U : 0U);
      if (flags == 0) continue;
      is_registered = true;
      mix(size);
      mix(static_cast<std::uint64_t>(before));
      mix(flags);
      for (const auto& offset : {one.send, one.recv}) mix(offset ? *offset + 1 : 0);
    }
  }
  return is_registered ? std::max<std::uint64_t>(digest, 1) : 0;
}

std::vector<std::uint64_t> digests_of_places(std::span<const operation* const> all,
                                             std::span<const std::shared_ptr<registered_pool>> pools) {
  std::vector<std::uint64_t> digests;
  if (!pools.empty())
    for (const operation* one : all) digests.push_back(digest_of_places(*one, pools));
  return digests;
}

error different_places(const std::string& what, rank one, rank other) {
  return {.code = errc::mismatch,
          .text = "the ranks disagree about registered memory in " + what + ": ranks " + to_string(one) + " and " +
                  to_string(other) +
                  " use different places of it, or one uses none: give every rank its buffer of the same allocation"};
}

} // namespace troupe
