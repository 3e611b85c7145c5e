#include <troupe/backends/host_staged/host_staged_layout.hpp>
#include <troupe/collectives/operation/extents.hpp>

#include <algorithm>
#include <functional>
#include <type_traits>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t alignment = 256;

constexpr std::size_t aligned(std::size_t bytes) noexcept {
  return (bytes + alignment - 1) / alignment * alignment;
}

} // namespace

host_staged_layout::host_staged_layout(std::span<const operation* const> all, rank self, int world_size) {
  std::vector<block> used;
  auto note = [&](const extent& one) {
    if (one.count == 0) return;
    std::byte* const begin = one.memory->data() + one.first * troupe::size_bytes(one.type);
    const std::size_t length = one.count * troupe::size_bytes(one.type);
    // Starts at the operand's front, because offsets of its parts are relative to it.
    used.push_back({.begin = one.memory->data(), .end = begin + length});
    (one.written ? after_ : before_).push_back({.device = begin, .size_bytes = length});
  };
  for (const operation* one : all) visit_extents(*one, self, world_size, note);
  place(std::move(used));
  for (auto* copies : {&before_, &after_})
    for (host_staged_copy& one : *copies) one.host = host_of(one.device);
}

void host_staged_layout::place(std::vector<block> used) {
  std::ranges::sort(used, std::less<>{}, &block::begin);
  for (const block& one : used) {
    if (!blocks_.empty() && std::less<>{}(one.begin, blocks_.back().end))
      blocks_.back().end = std::max(blocks_.back().end, one.end, std::less<>{});
    else
      blocks_.push_back(one);
  }
  for (block& one : blocks_) {
    one.host = size_bytes_ + reinterpret_cast<std::uintptr_t>(one.begin) % alignment;
    size_bytes_ = aligned(one.host + static_cast<std::size_t>(one.end - one.begin));
  }
}

/// Returns the offset of \p address in the host memory. Precondition: \p address is in a block.
std::size_t host_staged_layout::host_of(const std::byte* address) const {
  const auto behind = std::ranges::upper_bound(blocks_, address, std::less<>{}, &block::begin);
  const block& one = *std::prev(behind);
  return one.host + static_cast<std::size_t>(address - one.begin);
}

/// Returns an empty buffer if the operation does not use this memory on this rank.
buffer host_staged_layout::moved(const buffer& memory, const buffer& host) const {
  const std::byte* const front = memory.data();
  const auto behind = std::ranges::upper_bound(blocks_, front, std::less<>{}, &block::begin);
  if (front == nullptr || behind == blocks_.begin()) return {};
  const block& one = *std::prev(behind);
  if (!std::less<>{}(front, one.end)) return {};
  const auto length = std::min(memory.size_bytes(), static_cast<std::size_t>(one.end - front));
  return host.slice(host_of(front), length);
}

operation host_staged_layout::moved(const operation& what, const buffer& host) const {
  operation made = what;
  std::visit(
      [&]<class T>(T& one) {
        if constexpr (requires { one.send; }) one.send = moved(one.send.memory, host);
        if constexpr (requires { one.recv; }) one.recv = moved(one.recv.memory, host);
        if constexpr (requires { one.memory; }) one.memory = moved(one.memory.memory, host);
        if constexpr (requires { one.staged; })
          one.staged = true; // also on ranks with an empty part, which have no memory
        if constexpr (requires { one.factor; })
          if (one.factor.memory) one.factor.memory = moved(one.factor.memory, host);
        if constexpr (std::is_same_v<T, group>)
          for (operation& part : one.parts) part = moved(part, host);
      },
      made);
  return made;
}

} // namespace troupe
