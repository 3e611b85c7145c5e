#include <troupe/collectives/operation/signature.hpp>
#include <troupe/collectives/order/matching/compact_signature.hpp>
#include <troupe/collectives/pipeline/pipeline_progress.hpp>

#include <bit>
#include <numeric>
#include <string>
#include <type_traits>

namespace troupe {

namespace {

std::size_t sum_of(const std::vector<std::size_t>& counts) noexcept {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

/// Returns the number that represents an operation's size.
template <class T>
std::uint64_t count_of(const T& what) noexcept {
  if constexpr (std::is_same_v<T, copy>) return what.from.memory.size_bytes();
  if constexpr (std::is_same_v<T, group>) return what.parts.size();
  if constexpr (std::is_same_v<T, replay>) return number_of(what);
  if constexpr (requires { what.count; }) return what.count;
  if constexpr (requires { what.send_parts; }) return sum_of(what.send_parts.counts);
  if constexpr (requires { what.recv_parts; }) return sum_of(what.recv_parts.counts);
  return 0;
}

template <class T>
int peer_of(const T& what) noexcept {
  if constexpr (requires { what.root; }) return what.root.value();
  if constexpr (requires { what.peer; }) return what.peer.value();
  return 0;
}

operation_reach reach_of(const operation& what) noexcept {
  switch (matching_of(what)) {
    case matching::routes: return operation_reach::peers;
    case matching::nobody: return operation_reach::itself;
    case matching::all_ranks: break;
  }
  return operation_reach::all_ranks;
}

constexpr std::uint32_t reach_shift = 24; // position in the word, after kind, type and reduction

std::uint64_t two(std::uint32_t low, std::uint32_t high) noexcept {
  return low | std::uint64_t{high} << 32U;
}

} // namespace

operation_sketch::operation_sketch(const operation& what, request_origin from) noexcept {
  static_assert(sizeof(lane) == sizeof(std::uint32_t) && std::is_trivially_copyable_v<lane>);
  if (what.valueless_by_exception()) return;
  std::visit(
      [&](const auto& one) {
        auto nature = static_cast<std::uint32_t>(what.index());
        nature |= static_cast<std::uint32_t>(reach_of(what)) << reach_shift;
        int tag = 0;
        if constexpr (requires { one.type; }) nature |= static_cast<std::uint32_t>(one.type) << 8U;
        if constexpr (requires { one.op; }) nature |= static_cast<std::uint32_t>(one.op) << 16U;
        if constexpr (requires { one.tag; }) tag = one.tag;
        words_ = {two(nature, std::bit_cast<std::uint32_t>(from.lane)), count_of(one),
                  two(static_cast<std::uint32_t>(peer_of(one)), static_cast<std::uint32_t>(tag)), from.position};
      },
      what);
}

std::uint64_t operation_sketch::collectives() const noexcept {
  const auto reach = static_cast<std::uint32_t>(words_[0]) >> reach_shift;
  return reach == static_cast<std::uint32_t>(operation_reach::all_ranks) ? 1 : 0;
}

operation_mark operation_sketch::unpack() const {
  const auto nature = static_cast<std::uint32_t>(words_[0]);
  signature what{.kind = nature & 0xFFU,
                 .type = static_cast<dtype>(nature >> 8U & 0xFFU),
                 .op = static_cast<reduction>(nature >> 16U & 0xFFU),
                 .count = words_[1],
                 .root = rank{static_cast<int>(static_cast<std::uint32_t>(words_[2]))},
                 .tag = static_cast<int>(words_[2] >> 32U)};
  operation_mark made{.lane = std::bit_cast<lane>(static_cast<std::uint32_t>(words_[0] >> 32U)),
                      .position = words_[3],
                      .reach = static_cast<operation_reach>(nature >> reach_shift)};
  if (what.is_point_to_point()) made.peer = what.root;
  const std::string name{name_of_kind(what.kind)};
  const std::string count = std::to_string(what.count);
  if (name == "group")
    made.what = "group of " + count;
  else if (name == "copy")
    made.what = "copy of " + count + " bytes";
  else if (name.ends_with("_v"))
    made.what = name + " of " + count + ' ' + std::string{to_string(what.type)} +
                (name.starts_with("reduce") ? ", " + std::string{to_string(what.op)} : "");
  else
    made.what = describe(what);
  return made;
}

void latest_sketch::set(const operation_sketch& one, std::uint64_t collectives) noexcept {
  // Release on every word: a thread that reads a word of this write then sees that the version was odd before it.
  const std::uint64_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i].store(one.packed()[i], std::memory_order_release);
  collectives_.store(collectives_.load(std::memory_order_relaxed) + collectives, std::memory_order_release);
  version_.store(version + 2, std::memory_order_release);
}

std::optional<operation_mark> latest_sketch::get(std::uint64_t& collectives) const {
  for (;;) {
    const std::uint64_t before = version_.load(std::memory_order_acquire);
    if (before == 0) return std::nullopt;
    operation_sketch::words seen{};
    for (std::size_t i = 0; i < seen.size(); ++i) seen[i] = words_[i].load(std::memory_order_acquire);
    const std::uint64_t counted = collectives_.load(std::memory_order_acquire);
    if (before % 2 == 0 && version_.load(std::memory_order_relaxed) == before) {
      collectives = counted;
      return operation_sketch{seen}.unpack();
    }
  }
}

pipeline_progress progress_record::read(std::optional<time_point> running_since) const {
  pipeline_progress seen;
  // Reads in reverse order, so that a finished operation also counts as launched and submitted.
  seen.finished = finished.get(seen.collectives.finished);
  seen.started = running_since ? running.get() : seen.finished;
  seen.running_since = running_since;
  seen.launched = launched.get(seen.collectives.launched);
  seen.submitted = submitted.get(seen.collectives.submitted);
  return seen;
}

} // namespace troupe
