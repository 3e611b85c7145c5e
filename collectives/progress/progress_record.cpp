#include <troupe/collectives/operation/compact_signature.hpp>
#include <troupe/collectives/operation/signature.hpp>
#include <troupe/collectives/progress/progress_record.hpp>

#include <bit>
#include <new>

namespace troupe {

namespace {

/// The packed form of operation_sketch: a compact_signature, with the reach in place of `staged`, and the origin.
struct sketched {
  std::uint64_t count = 0;
  std::int32_t root = 0;
  std::int32_t tag = 0;
  std::uint8_t kind = 0;
  dtype type{};
  reduction op{};
  operation_reach reach{};
  troupe::lane lane{};
  std::uint64_t position = 0;
};

sketched unpacked(const operation_sketch::words& packed) noexcept {
  return std::bit_cast<sketched>(packed);
}

constexpr std::int32_t several_peers = -1;

/// Returns the only part of a group of one, which says more than "group of 1"; else \p what.
const operation& told_of(const operation& what) noexcept {
  const auto* const several = std::get_if<group>(&what);
  return several != nullptr && several->parts.size() == 1 ? several->parts.front() : what;
}

/// Returns the peer of all transfers in \p several.
std::int32_t common_peer(const group& several) noexcept {
  std::int32_t found = several_peers;
  for (const operation& one : several.parts) {
    if (!std::holds_alternative<send>(one) && !std::holds_alternative<recv>(one)) continue;
    const std::int32_t peer = compact_unstaged(one).root;
    if (found != several_peers && found != peer) return several_peers;
    found = peer;
  }
  return found;
}

} // namespace

operation_sketch::operation_sketch(const operation& what, request_origin from) noexcept {
  if (what.valueless_by_exception()) return;
  const operation& told = told_of(what);
  const compact_signature one = compact_unstaged(told);
  const auto* const several = std::get_if<group>(&told);
  words_ = std::bit_cast<words>(sketched{.count = one.count,
                                         .root = several != nullptr ? common_peer(*several) : one.root,
                                         .tag = one.tag,
                                         .kind = one.kind,
                                         .type = one.type,
                                         .op = one.op,
                                         .reach = reach_of(what),
                                         .lane = from.lane,
                                         .position = from.position});
}

std::uint64_t operation_sketch::collectives() const noexcept {
  return unpacked(words_).reach == operation_reach::all_ranks ? 1 : 0;
}

operation_mark operation_sketch::unpack() const {
  const sketched one = unpacked(words_);
  operation_mark made{
      .what = describe(compact_signature{
          .count = one.count, .root = one.root, .tag = one.tag, .kind = one.kind, .type = one.type, .op = one.op}),
      .lane = one.lane,
      .position = one.position,
      .reach = one.reach};
  if (one.reach == operation_reach::peers && one.root != several_peers) made.peer = rank{one.root};
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

void success_count::note_early(std::uint64_t number) noexcept {
  std::uint64_t before = number - 1;
  if (value_.compare_exchange_strong(before, number)) return; // nothing is early: its number would be smaller
  try {
    const std::lock_guard lock{mutex_};
    early_.push_back(number);
    has_early_.store(true);
  } catch (const std::bad_alloc&) { // the count stops before it, as if it had not succeeded
    return;
  }
  count_early();
}

void success_count::count_early() noexcept {
  const std::lock_guard lock{mutex_};
  while (!early_.empty()) {
    std::uint64_t before = early_.front() - 1;
    if (!value_.compare_exchange_strong(before, early_.front())) return;
    early_.pop_front();
  }
  has_early_.store(false);
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
