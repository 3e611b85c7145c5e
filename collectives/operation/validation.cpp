#include <troupe/collectives/operation/validation.hpp>

#include <troupe/collectives/operation/agreement.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/operation/staging_plan.hpp>
#include <troupe/device/enum_names.hpp>
#include <troupe/device/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

/// The result of a check: an error, or null. It is a pointer, because every request passes many checks and an error
/// object is large.
using objection = std::unique_ptr<error>;

[[nodiscard]] inline objection refuse(errc code, std::string text) {
  return std::make_unique<error>(error{.code = code, .text = std::move(text)});
}

[[nodiscard]] inline error as_error(objection found) {
  return found ? std::move(*found) : error{};
}

/// Checks the values of an operation that do not depend on its memory. Must run before any check of the memory.
class value_check {
public:
  explicit value_check(const rank_context& at)
    : at_{at}, size_{static_cast<std::size_t>(at.world_size)}, max_each_{max_bytes / size_} {}

  template <class Operation>
  objection operator()(const Operation& what) const {
    if constexpr (requires { what.type; })
      if (size_bytes(what.type) == 0)
        return refuse(errc::invalid_argument, "dtype " + std::to_string(static_cast<int>(what.type)) +
                                                  " is unknown: choose one of " + listed(enum_names<dtype>));
    if constexpr (requires { what.op; })
      if (to_string(what.op).empty())
        return refuse(errc::invalid_argument, "reduction " + std::to_string(static_cast<int>(what.op)) +
                                                  " is unknown: choose one of " + listed(enum_names<reduction>));
    if constexpr (requires { what.root; })
      if (objection failure = uses_root(what) ? check_rank(what.root, "root") : nullptr) return failure;
    if constexpr (requires { what.peer; }) {
      if (objection failure = check_rank(what.peer, "peer")) return failure;
      if (what.tag < 0)
        return refuse(errc::invalid_argument, "tag " + std::to_string(what.tag) + " is negative: tags count from 0");
    }
    if constexpr (requires { what.count; })
      if (what.count > max_each_ / size_bytes(what.type))
        return refuse(errc::invalid_argument, "count " + std::to_string(what.count) + " of " + std::to_string(size_) +
                                                  " ranks exceeds any memory");
    if constexpr (requires { what.send_parts; })
      if (objection failure = check_parts(what.send_parts, "send_parts", size_bytes(what.type))) return failure;
    if constexpr (requires { what.recv_parts; })
      if (objection failure = check_parts(what.recv_parts, "recv_parts", size_bytes(what.type))) return failure;
    if constexpr (requires { what.commit; })
      if (what.commit && *what.commit > barrier::most_commit)
        return refuse(errc::invalid_argument, "the number " + std::to_string(*what.commit) +
                                                  " of a commit is too large: the largest is " +
                                                  std::to_string(barrier::most_commit));
    if constexpr (std::is_same_v<Operation, agree>)
      if (error why = objection_to(what)) return std::make_unique<error>(std::move(why));
    return {};
  }

private:
  static constexpr std::size_t max_bytes = static_cast<std::size_t>(PTRDIFF_MAX);

  template <class Operation>
  static bool uses_root(const Operation& what) {
    if constexpr (std::is_same_v<Operation, agree>) return what.rule == agreement_rule::of_rank;
    return true;
  }

  [[nodiscard]] objection check_rank(rank one, std::string_view role) const {
    if (one.value() >= 0 && one.value() < at_.world_size) return {};
    return refuse(errc::invalid_argument, std::string{role} + " " + to_string(one) +
                                              " is not in this world: its ranks are 0 to " +
                                              std::to_string(at_.world_size - 1));
  }

  [[nodiscard]] objection check_parts(const partition& parts, std::string_view role, std::size_t width) const {
    if (parts.counts.size() != size_ || parts.displacements.size() != size_)
      return refuse(errc::invalid_argument, std::string{role} + " has " + std::to_string(parts.counts.size()) +
                                                " counts and " + std::to_string(parts.displacements.size()) +
                                                " displacements: give one of each for each of the " +
                                                std::to_string(size_) + " ranks");
    std::size_t sum = 0;
    for (std::size_t i = 0; i < size_; ++i) {
      const std::size_t left = max_bytes / width - std::max(sum, std::min(parts.displacements[i], max_bytes / width));
      if (parts.displacements[i] > max_bytes / width || parts.counts[i] > left)
        return refuse(errc::invalid_argument, std::string{role} + " of rank " + std::to_string(i) + " (" +
                                                  std::to_string(parts.counts[i]) + " elements from " +
                                                  std::to_string(parts.displacements[i]) + ") exceeds any memory");
      sum += parts.counts[i];
    }
    return {};
  }

  const rank_context& at_;
  std::size_t size_;
  std::size_t max_each_; ///< In bytes, of each rank.
};

namespace {

/// Checks that \p memory belongs to the driver of \p where and is not stale.
objection check_life(const buffer& memory, std::string_view role, const device& where) {
  const device* home = memory.where();
  if (home == nullptr && memory)
    return refuse(errc::wrong_device, "the " + std::string{role} +
                                          " buffer is memory of another process: only a request to the whole world can "
                                          "name it, for the rank that has exported it");
  if (home == nullptr) return {};
  if (home->shared_api() != where.shared_api())
    return refuse(errc::wrong_device, "the " + std::string{role} + " buffer was made by another runtime's " +
                                          std::string{home->api().name()} + " driver: allocate it from this world");
  if (memory.stale())
    return refuse(errc::stale_buffer, "the " + std::string{role} + " buffer was made before device " +
                                          to_string(home->id()) + " lost its memory: allocate it again");
  return {};
}

bool is_elsewhere(const buffer& memory, const device& where) {
  return memory && !memory.on_host() && memory.where()->id() != where.id();
}

objection check_residence(const buffer& memory, std::string_view role, const device& where) {
  if (objection failure = check_life(memory, role, where)) return failure;
  if (!is_elsewhere(memory, where)) return {};
  return refuse(errc::wrong_device, "the " + std::string{role} + " buffer lives on device " +
                                        to_string(memory.where()->id()) + ", but this rank's device is " +
                                        to_string(where.id()) +
                                        ": pass a buffer of the rank's own device, or host memory");
}

objection check_ready_event(const operand& argument, std::string_view role, const device& where) {
  if (!argument.ready || argument.ready->where().shared_api() == where.shared_api()) return {};
  return refuse(errc::wrong_device, "the " + std::string{role} +
                                        " buffer's ready event belongs to another runtime's "
                                        "driver: record it with this one's");
}

objection check_extent(const extent& one, const device& where) {
  const std::string_view role = one.role;
  if (objection failure = check_residence(*one.memory, role, where)) return failure;
  if (one.count == 0) return {};
  const buffer& memory = *one.memory;
  if (!memory)
    return refuse(errc::invalid_argument, "the " + std::string{role} + " buffer is empty, and " +
                                              std::to_string(one.count) + " elements of it are needed");
  if (one.role == "factor" && memory.on_host())
    return refuse(errc::invalid_argument, "the factor is in " + std::string{to_string(memory.kind())} +
                                              " host memory: give it by value (factor::of()), or copy it to the rank's "
                                              "device");
  const std::size_t capacity = memory.size_bytes() / size_bytes(one.type);
  if (one.first > capacity || one.count > capacity - one.first)
    return refuse(errc::invalid_argument,
                  "the " + std::string{role} + " buffer is too short: " + std::to_string(one.count) +
                      " elements from " + std::to_string(one.first) + " are needed, and " +
                      std::to_string(memory.size_bytes()) + " bytes are " + std::to_string(capacity) + " elements of " +
                      std::string{to_string(one.type)});
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % size_bytes(one.type) != 0)
    return refuse(errc::invalid_argument, "the " + std::string{role} + " buffer is not aligned to the " +
                                              std::to_string(size_bytes(one.type)) + " bytes of " +
                                              std::string{to_string(one.type)} + ": slice at a multiple of that");
  return {};
}

std::uintptr_t begin_of(const extent& one) {
  return reinterpret_cast<std::uintptr_t>(one.memory->data()) + one.first * size_bytes(one.type);
}

/// The addresses of an extent.
struct range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool written = false;
  std::uint32_t index = 0; ///< Of the part in its group; without a group of the extent in its footprint.
};

using ranges = std::pmr::vector<range>;

/// Appends the ranges of \p part, the part \p index of a group. One that is read and written in place is one range.
void append_ranges(ranges& all, const operation& part, std::size_t index, const rank_context& at) {
  const std::size_t first = all.size();
  auto append = [&](const extent& one) {
    if (one.count == 0) return;
    const std::uintptr_t begin = begin_of(one);
    const std::uintptr_t end = begin + one.count * size_bytes(one.type);
    if (all.size() > first && all.back().begin == begin && all.back().end == end)
      all.back().written = all.back().written || one.written;
    else
      all.push_back({begin, end, one.written, static_cast<std::uint32_t>(index)});
  };
  visit_extents(part, at.self, at.world_size, append);
}

/// Calls \p conflict for each pair of overlapping ranges with a writer among them, until it returns an error. Sorts
/// \p all, unless they are in ascending order, as the memory of a group mostly is.
template <class Conflict>
objection find_conflict(ranges& all, Conflict conflict) {
  if (!std::ranges::is_sorted(all, {}, &range::begin)) std::ranges::sort(all, {}, &range::begin);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = i + 1; j < all.size() && all[j].begin < all[i].end; ++j)
      if (all[i].written || all[j].written)
        if (objection failure = conflict(all[i], all[j])) return failure;
  return {};
}

objection check_overlap(const footprint& touched) {
  ranges all{touched.extents.get_allocator()};
  all.reserve(touched.extents.size());
  for (std::uint32_t i = 0; const extent& one : touched.extents) {
    if (one.count > 0) all.push_back({begin_of(one), begin_of(one) + one.count * size_bytes(one.type), one.written, i});
    ++i;
  }
  std::size_t in_place_parts = 0;
  return find_conflict(all, [&](const range& one, const range& other) -> objection {
    const extent& from = touched.extents[one.written ? other.index : one.index];
    const extent& to = touched.extents[one.written ? one.index : other.index];
    if (from.written)
      return refuse(errc::invalid_argument, "two parts of the " + std::string{to.role} +
                                                " buffer overlap, and both are written: give them displacements that "
                                                "keep them apart");
    const auto width = static_cast<std::ptrdiff_t>(size_bytes(from.type));
    if (from.role == "send" && touched.in_place &&
        from.memory->data() == to.memory->data() + *touched.in_place * width) {
      if (++in_place_parts == 1) return {};
      return refuse(errc::invalid_argument,
                    "two parts of the send buffer overlap where the result is written in place: "
                    "give them displacements that keep them apart");
    }
    return refuse(errc::invalid_argument,
                  "the " + std::string{from.role} + " and " + std::string{to.role} + " ranges overlap" +
                      (touched.in_place ? " without being in place: put the send range where this rank's part of the "
                                          "result is, or use two ranges that do not touch"
                                        : ": this operation is not done in place, use two ranges that do not touch"));
  });
}

objection check_memory(const footprint& touched, const device& where) {
  for (const extent& one : touched.extents)
    if (objection failure = check_extent(one, where)) return failure;
  return check_overlap(touched);
}

objection check_events(const operation& what, const device& where) {
  objection first;
  visit_operands(what, [&](const operand& one, std::string_view role) {
    if (!first) first = check_ready_event(one, role, where);
  });
  return first;
}

/// Checks the two ends of a copy. One end may be on another device if the other end is on the rank's own device.
objection check_ends(const buffer& from, const buffer& to, const device& where) {
  if (objection failure = check_life(from, "source", where)) return failure;
  if (objection failure = check_life(to, "destination", where)) return failure;
  const auto is_here = [&](const buffer& one) { return one && !one.on_host() && !is_elsewhere(one, where); };
  for (const auto& [one, role, other] : {std::tuple{&from, "source", &to}, std::tuple{&to, "destination", &from}}) {
    if (!is_elsewhere(*one, where)) continue;
    const device_id away = one->where()->id();
    if (!is_here(*other))
      return refuse(errc::wrong_device, "the " + std::string{role} + " buffer lives on device " + to_string(away) +
                                            ", and no part of the copy is on this rank's device " +
                                            to_string(where.id()) + ": ask the rank of device " + to_string(away));
    if (!where.reaches(away))
      return refuse(errc::unsupported, "device " + to_string(where.id()) + " has no access to the memory of device " +
                                           to_string(away) + ", where the " + role +
                                           " buffer lives: copy through pinned memory");
  }
  return {};
}

objection check_copy(const copy& what, const footprint& touched, const device& where) {
  if (objection failure = check_ends(what.from.memory, what.to.memory, where)) return failure;
  const std::size_t length = what.from.memory.size_bytes();
  if (length > what.to.memory.size_bytes())
    return refuse(errc::invalid_argument, "the source's " + std::to_string(length) +
                                              " bytes do not fit the destination's " +
                                              std::to_string(what.to.memory.size_bytes()) + ": slice the source");
  if (check_overlap(touched))
    return refuse(errc::invalid_argument, "the source and destination of a copy overlap within " +
                                              std::to_string(length) + " bytes: copy between ranges that do not touch");
  return {};
}

objection check_ability(const operation& what, const rank_context& at) {
  if (at.able != nullptr && !at.able->exclusions.empty())
    if (error why = at.able->objection_to(what, at.world_size)) return std::make_unique<error>(std::move(why));
  return {};
}

/// Fast path: returns true only if the memory accesses of an operation are certainly valid. Most requests read one
/// range and write one. Appends these to \p into, if it is not null.
class fast_check {
public:
  fast_check(const rank_context& at, ranges* into = nullptr, std::size_t part = 0)
    : at_{at},
      epoch_{at.where.current_epoch()},
      size_{static_cast<std::size_t>(at.world_size)},
      into_{into},
      part_{static_cast<std::uint32_t>(part)} {}

  bool operator()(const all_reduce& what) const { return is_fine(what, what.count, what.count); }
  bool operator()(const all_gather& what) const { return is_fine(what, what.count, size_ * what.count); }
  bool operator()(const reduce_scatter& what) const { return is_fine(what, size_ * what.count, what.count); }
  bool operator()(const all_to_all& what) const { return is_fine(what, size_ * what.count, size_ * what.count); }
  bool operator()(const auto&) const { return false; }

private:
  template <class Operation>
  [[nodiscard]] bool is_fine(const Operation& what, std::size_t sent, std::size_t received) const {
    if constexpr (requires { what.factor; })
      if (what.factor.memory) return false;
    const std::size_t width = size_bytes(what.type);
    const range from = range_of(what.send, sent * width, width);
    const range to = range_of(what.recv, received * width, width, true);
    if (from.begin == 0 || to.begin == 0) return false;
    const bool is_in_place = std::is_same_v<Operation, all_reduce> && from.begin == to.begin;
    if (!is_in_place && from.end > to.begin && to.end > from.begin) return false;
    if (into_ == nullptr) return true;
    if (!is_in_place && sent > 0) into_->push_back(from);
    if (received > 0) into_->push_back(to);
    return true;
  }

  /// Returns the first \p bytes of \p one, if it certainly holds so many, aligned to \p width, on the rank's device.
  /// Otherwise it begins at 0.
  [[nodiscard]] range range_of(const operand& one, std::size_t bytes, std::size_t width, bool written = false) const {
    const memory_block* const block = one.memory.block().get();
    if (block == nullptr || block->where().get() != &at_.where || block->kind() != memory_kind::device ||
        block->made_in() != epoch_ || bytes > one.memory.size_bytes() || one.ready)
      return {};
    const auto begin = reinterpret_cast<std::uintptr_t>(block->address()) + one.memory.offset_bytes();
    if ((begin & (width - 1)) != 0) return {}; // a division would take longer than all other checks
    return {begin, begin + bytes, written, part_};
  }

  const rank_context& at_;
  device_epoch epoch_;
  std::size_t size_;
  ranges* into_;
  std::uint32_t part_;
};

objection check_call(const call& what) {
  if (!what.function || what.function->is_placeholder())
    return refuse(errc::invalid_argument, "the call names no function of this rank's process: register it with "
                                          "world::register_function()");
  if (what.arguments.size() > most_call_arguments || what.values.size() > most_call_bytes)
    return refuse(errc::invalid_argument, "the call has " + std::to_string(what.arguments.size()) + " arguments and " +
                                              std::to_string(what.values.size()) +
                                              " bytes of values, and the limits are " +
                                              std::to_string(most_call_arguments) + " and " +
                                              std::to_string(most_call_bytes) + ": pass more in memory");
  return {};
}

objection check_reach(const operation& what, const footprint& touched, const rank_context& at) {
  if (objection failure = check_events(what, at.where)) return failure;
  if (const auto* own = std::get_if<call>(&what))
    if (objection failure = check_call(*own)) return failure;
  const auto* move = std::get_if<copy>(&what);
  return move != nullptr ? check_copy(*move, touched, at.where) : check_memory(touched, at.where);
}

/// The sends of a rank to itself, or its recvs from itself, by tag and then in their order.
template <class Half>
std::vector<const Half*> halves_to_self(std::span<const operation> parts, rank self) {
  std::vector<const Half*> found;
  for (const operation& part : parts)
    if (const auto* one = std::get_if<Half>(&part); one != nullptr && one->peer == self) found.push_back(one);
  std::ranges::stable_sort(found, {}, [](const Half* one) { return one->tag; });
  return found;
}

/// \p half: the send or recv that has no other half in its request.
template <class Half>
objection refuse_lone_half(const Half& half, rank self) {
  const bool sends = std::is_same_v<Half, send>;
  return refuse(errc::invalid_argument, "the " + std::string{name_of(operation{half})} + " with tag " +
                                            std::to_string(half.tag) + " is between rank " + to_string(self) +
                                            " and itself, and the same request has no " + (sends ? "recv" : "send") +
                                            " for it: put both into one group, or use a copy");
}

bool is_to_self(const operation& what, rank self) {
  if (const auto* one = std::get_if<send>(&what)) return one->peer == self;
  const auto* one = std::get_if<recv>(&what);
  return one != nullptr && one->peer == self;
}

objection pair_transfers_to_self(std::span<const operation> parts, rank self) {
  if (std::ranges::none_of(parts, [self](const operation& one) { return is_to_self(one, self); })) return {};
  const auto sends = halves_to_self<send>(parts, self);
  const auto recvs = halves_to_self<recv>(parts, self);
  for (std::size_t i = 0; i < std::max(sends.size(), recvs.size()); ++i) {
    if (i == recvs.size() || (i < sends.size() && sends[i]->tag < recvs[i]->tag))
      return refuse_lone_half(*sends[i], self);
    if (i == sends.size() || recvs[i]->tag < sends[i]->tag) return refuse_lone_half(*recvs[i], self);
    if (sends[i]->count != recvs[i]->count || sends[i]->type != recvs[i]->type)
      return refuse(errc::mismatch, "rank " + to_string(self) + " sends itself " + std::to_string(sends[i]->count) +
                                        ' ' + std::string{to_string(sends[i]->type)} + " with tag " +
                                        std::to_string(sends[i]->tag) + ", and its recv is for " +
                                        std::to_string(recvs[i]->count) + ' ' + std::string{to_string(recvs[i]->type)} +
                                        ": give both the same");
  }
  return {};
}

objection in_part(std::size_t index, objection failure) {
  failure->text = "part " + std::to_string(index) + " of the group: " + failure->text;
  failure->part = index;
  return failure;
}

/// Checks an operation that is neither a group nor a replay, except its memory.
objection check_values(const operation& what, const value_check& values, const rank_context& at) {
  if (objection failure = std::visit(values, what)) return failure;
  return check_ability(what, at);
}

/// Checks the memory of such an operation.
objection check_reach(const operation& what, const rank_context& at) {
  std::array<std::byte, 1024> near; // NOLINT(cppcoreguidelines-pro-type-member-init): enough for most, and then no heap
  std::pmr::monotonic_buffer_resource memory{near.data(), near.size()};
  return check_reach(what, footprint_of(what, at.self, at.world_size, &memory), at);
}

/// Names a range of a group: its part, and the argument whose range it is.
std::string name_range(const range& one, const group& within, const rank_context& at) {
  const operation& part = within.parts[one.index];
  std::string_view role;
  auto look = [&](const extent& each) {
    if (role.empty() && each.count > 0 && each.written == one.written && begin_of(each) == one.begin) role = each.role;
  };
  visit_extents(part, at.self, at.world_size, look);
  return "part " + std::to_string(one.index) + " (the " + std::string{role} + " range of its " +
         std::string{name_of(part)} + ")";
}

objection check_overlap(const group& what, ranges& all, const rank_context& at) {
  return find_conflict(all, [&](const range& one, const range& other) -> objection {
    if (one.index == other.index) return {};
    return refuse(errc::invalid_argument, name_range(one, what, at) + " and " + name_range(other, what, at) +
                                              " overlap, and one is written: parts of a group are not ordered against "
                                              "each other, so ask for them one after the other");
  });
}

objection validate_group(const group& what, const rank_context& at) {
  std::array<std::byte, 8192> near; // NOLINT(cppcoreguidelines-pro-type-member-init): as above
  std::pmr::monotonic_buffer_resource memory{near.data(), near.size()};
  ranges all{&memory};
  all.reserve(2 * what.parts.size());
  const value_check values{at};
  for (std::size_t i = 0; i < what.parts.size(); ++i) {
    const operation& part = what.parts[i];
    if (std::holds_alternative<group>(part) || std::holds_alternative<replay>(part) ||
        std::holds_alternative<call>(part) || std::holds_alternative<agree>(part))
      return in_part(i, refuse(errc::invalid_argument,
                               std::string{name_of(part)} + " cannot be in a group: ask for it by itself"));
    if (std::holds_alternative<copy>(part) && staging_of(part) == staging::copy)
      return in_part(i, refuse(errc::invalid_argument,
                               "a copy of pageable memory, or from host to host, cannot be in a group: use pinned "
                               "memory and device memory, or ask for the copy by itself"));
    if (objection failure = check_values(part, values, at)) return in_part(i, std::move(failure));
    if (std::visit(fast_check{at, &all, i}, part)) continue;
    if (objection failure = check_reach(part, at)) return in_part(i, std::move(failure));
    append_ranges(all, part, i, at);
  }
  if (objection failure = pair_transfers_to_self(what.parts, at.self)) return failure;
  return check_overlap(what, all, at);
}

} // namespace

error check_transfers_to_self(std::span<const operation> parts, rank self) {
  return as_error(pair_transfers_to_self(parts, self));
}

error validate(const operation& what, const rank_context& at) {
  if (const auto* several = std::get_if<group>(&what)) return as_error(validate_group(*several, at));
  if (const auto* again = std::get_if<replay>(&what))
    return again->of ? again->of->objection_to_replay(at.stamp)
                     : *refuse(errc::invalid_argument, "the replay names no plan: capture one with world::capture()");
  if (objection failure = check_values(what, value_check{at}, at)) return as_error(std::move(failure));
  return std::visit(fast_check{at}, what) ? error{} : as_error(check_reach(what, at));
}

} // namespace troupe
