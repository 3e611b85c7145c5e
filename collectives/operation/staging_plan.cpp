#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/operation/staging_plan.hpp>

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>

namespace troupe {

namespace {

/// Limit of the launches put into a stream at one time: larger requests get larger chunks. NCCL's proxies were seen to
/// hang near 2,048 operations in flight.
constexpr std::size_t most_chunks = 256;
/// Parts of a chunk begin at multiples of this, which NCCL's fast paths and copy engines prefer.
constexpr std::size_t alignment_bytes = 128;

/// Collectives whose counts all ranks know. They are launched in chunks.
template <class T>
constexpr bool is_cut = requires(T one) {
  one.staged;
};

/// True if one rank's input or result holds a part for each rank.
template <class T>
constexpr bool has_part_for_each =
    !std::is_same_v<T, all_reduce> && !std::is_same_v<T, reduce> && !std::is_same_v<T, broadcast>;

bool uses_host(const operation& what) {
  bool found = false;
  if (const auto* several = std::get_if<group>(&what)) // its copies are never staged: see validate()
    return std::ranges::any_of(
        several->parts, [](const operation& part) { return !std::holds_alternative<copy>(part) && uses_host(part); });
  visit_operands(what, [&](const operand& one, std::string_view) {
    const memory_block* const block = one.memory.block().get();
    found = found || (block != nullptr && block->kind() != memory_kind::device);
  });
  return found;
}

std::size_t largest_of(const std::vector<std::size_t>& counts) {
  return counts.empty() ? 0 : *std::ranges::max_element(counts);
}

/// Returns the number of elements of the longest part.
template <class T>
std::size_t longest_part(const T& what) {
  if constexpr (requires { what.count; }) return what.count;
  if constexpr (requires { what.recv_parts; }) return largest_of(what.recv_parts.counts);
  if constexpr (requires { what.send_parts; }) return largest_of(what.send_parts.counts);
  return 0;
}

std::size_t step_of(std::size_t longest, std::size_t width, std::size_t part_count, const staging_limits& limits) {
  const std::size_t quantum = alignment_bytes / width;
  const std::size_t least = (longest + most_chunks - 1) / most_chunks;
  const std::size_t wanted = std::max(limits.chunk_bytes / width / part_count, std::size_t{1});
  if (wanted < least) return (least + quantum - 1) / quantum * quantum;
  return wanted > quantum ? wanted - wanted % quantum : wanted;
}

/// A range of elements that belongs to one rank.
struct part {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// The elements [begin, end) of every part.
struct slab {
  std::size_t begin = 0;
  std::size_t end = std::numeric_limits<std::size_t>::max();

  [[nodiscard]] part of(const part& whole) const {
    const std::size_t skipped = std::min(begin, whole.count);
    return {whole.first + skipped, std::min(end, whole.count) - skipped};
  }
};

/// Returns the parts of the operand \p role; nullopt if this rank does not use it. \p count: the count of each part,
/// for an operation with one count for all.
std::optional<std::vector<part>> parts_of(const footprint& touched, std::string_view role,
                                          std::optional<std::size_t> count) {
  std::optional<std::vector<part>> parts;
  for (const extent& one : touched.extents) {
    if (one.role != role) continue;
    if (!parts) parts.emplace();
    const std::size_t length = count && *count > 0 ? *count : one.count;
    for (std::size_t at = 0; at == 0 || at < one.count; at += length) {
      parts->push_back({one.first + at, length});
      if (length == 0) break;
    }
  }
  return parts;
}

staged_area area_of(const buffer& memory, const std::vector<part>& parts, std::size_t width, bool written) {
  staged_area area{.memory = memory, .written = written};
  for (const part& one : parts) {
    const staged_area::piece added{one.first * width, one.count * width};
    if (added.size_bytes == 0) continue;
    area.size_bytes += added.size_bytes;
    if (!area.pieces.empty() && area.pieces.back().offset_bytes + area.pieces.back().size_bytes == added.offset_bytes)
      area.pieces.back().size_bytes += added.size_bytes;
    else
      area.pieces.push_back(added);
  }
  return area;
}

/// Derives the operation on one chunk from an operation or a part of a group.
class operation_slicer {
public:
  operation_slicer(rank self, int world_size, bool whole, slab range, const staging_place& place)
    : self_{self}, world_size_{world_size}, whole_{whole}, range_{range}, place_{place} {}

  [[nodiscard]] operation cut(const operation& what) const {
    operation made = what;
    const footprint touched = footprint_of(what, self_, world_size_);
    std::visit([&](auto& one) { cut(one, touched); }, made);
    return made;
  }

private:
  template <class T>
  void cut(T& one, const footprint& touched) const {
    if constexpr (is_cut<T>) one.staged = false; // the launched operation is not staged any more
    std::optional<std::size_t> count;
    if constexpr (requires { one.count; }) count = one.count;
    if constexpr (std::is_same_v<T, send>) {
      place_operand(one.memory, touched, "send", count, one.type, false, nullptr);
    } else if constexpr (std::is_same_v<T, recv>) {
      place_operand(one.memory, touched, "recv", count, one.type, true, nullptr);
    } else if constexpr (requires {
                           one.send;
                           one.recv;
                         }) {
      partition* sent = nullptr;
      partition* received = nullptr;
      if constexpr (requires { one.send_parts; }) sent = &one.send_parts;
      if constexpr (requires { one.recv_parts; }) received = &one.recv_parts;
      place_operand(one.send, touched, "send", count, one.type, false, sent);
      place_operand(one.recv, touched, "recv", count, one.type, true, received);
    }
    if constexpr (requires { one.count; }) one.count = range_.of({0, one.count}).count;
  }

  void place_operand(operand& argument, const footprint& touched, std::string_view role,
                     std::optional<std::size_t> count, dtype type, bool written, partition* layout) const {
    auto parts = parts_of(touched, role, count);
    if (!parts) {
      argument = {};         // this rank does not use the operand
      if (layout != nullptr) // its counts still describe the other argument
        for (std::size_t& one : layout->counts) one = range_.of({0, one}).count;
      return;
    }
    const bool is_staged = argument.memory.on_host() || (!whole_ && parts->size() > 1);
    if (whole_ && !is_staged) return;
    for (part& one : *parts) one = range_.of(one);
    if (layout != nullptr) {
      std::vector<std::size_t> counts;
      for (const part& one : *parts) counts.push_back(one.count);
      *layout = partition::packed(std::move(counts));
    }
    const std::size_t width = size_bytes(type);
    if (is_staged) {
      argument.memory = place_(area_of(argument.memory, *parts, width, written));
    } else if (const part& only = parts->front(); only.count > 0) {
      argument.memory = argument.memory.slice(only.first * width, only.count * width);
    }
  }

  rank self_;
  int world_size_;
  bool whole_;
  slab range_;
  const staging_place& place_;
};

} // namespace

staging staging_of(const operation& what) {
  if (const auto* move = std::get_if<copy>(&what)) {
    const buffer& from = move->from.memory;
    const buffer& to = move->to.memory;
    const bool both_on_host = from.on_host() && to.on_host();
    const bool any_pageable = (from.on_host() && from.kind() == memory_kind::pageable) ||
                              (to.on_host() && to.kind() == memory_kind::pageable);
    return from.size_bytes() > 0 && (both_on_host || any_pageable) ? staging::copy : staging::none;
  }
  if (std::holds_alternative<call>(what)) return staging::none; // the function gets host memory as it is
  return std::visit(
      [&]<class T>(const T& one) {
        if constexpr (is_cut<T>)
          if (one.staged) return staging::chunks;
        if (!uses_host(what)) return staging::none;
        return is_cut<T> ? staging::chunks : staging::whole;
      },
      what);
}

bool is_launched_in_chunks(const operation& what) {
  return staging_of(what) == staging::chunks && std::visit([](const auto& one) { return longest_part(one) > 0; }, what);
}

staging_plan::staging_plan(const operation& what, rank self, int world_size, const staging_limits& limits)
  : what_{what}, self_{self}, world_size_{world_size}, whole_{staging_of(what) != staging::chunks} {
  if (whole_) return;
  std::visit(
      [&]<class T>(const T& one) {
        if constexpr (is_cut<T>) {
          const std::size_t longest = longest_part(one);
          const std::size_t parts = has_part_for_each<T> ? static_cast<std::size_t>(world_size) : 1;
          step_ = step_of(longest, size_bytes(one.type), parts, limits);
          chunk_count_ = std::max<std::size_t>(1, (longest + step_ - 1) / step_);
        }
      },
      what_);
}

operation staging_plan::chunk(std::size_t index, const staging_place& place) const {
  const slab range = whole_ ? slab{} : slab{index * step_, (index + 1) * step_};
  const operation_slicer slicer{self_, world_size_, whole_, range, place};
  const auto* several = std::get_if<group>(&what_);
  if (several == nullptr) return slicer.cut(what_);
  group made;
  made.parts.reserve(several->parts.size());
  for (const operation& one : several->parts) made.parts.push_back(slicer.cut(one));
  return made;
}

} // namespace troupe
