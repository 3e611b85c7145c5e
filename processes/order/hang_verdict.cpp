#include <troupe/processes/order/hang_verdict.hpp>

#include <troupe/collectives/progress/absence_report.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_operations_named = 4; ///< Limit of the operations that are named as waiting.

bool is_open_at(const open_operation& one, rank where) {
  return std::ranges::any_of(one.ranks, [&](const auto& at) { return at.rank == where && !at.has_finished; });
}

/// Returns whether \p one cannot begin at some rank before \p other has ended there.
bool waits_behind(const open_operation& one, const open_operation& other) {
  return other.number < one.number &&
         std::ranges::any_of(one.ranks, [&](const auto& at) { return !at.has_finished && is_open_at(other, at.rank); });
}

std::string name_of(const open_operation& one) {
  return describe(one.what) + (one.sub_world.empty() ? "" : " of sub-world '" + one.sub_world + "'");
}

template <class Condition>
std::vector<rank> ranks_where(const open_operation& one, Condition condition) {
  std::vector<rank> found;
  for (const auto& at : one.ranks)
    if (condition(at)) found.push_back(at.rank);
  std::ranges::sort(found);
  return found;
}

/// Returns the part of a sentence that says which operations wait behind \p hanging; empty if there are none.
std::string name_waiting(const open_operation& hanging, std::vector<const open_operation*> all) {
  std::ranges::sort(all, {}, &open_operation::number);
  std::vector<const open_operation*> chain{&hanging};
  for (const open_operation* one : all)
    if (std::ranges::any_of(chain, [&](const auto* other) { return waits_behind(*one, *other); })) chain.push_back(one);
  const std::size_t count = chain.size() - 1;
  std::string text;
  for (std::size_t i = 0; i < std::min(count, most_operations_named); ++i)
    text += (i == 0 ? "; " : ", ") + name_of(*chain[i + 1]);
  if (count > most_operations_named) text += " and " + std::to_string(count - most_operations_named) + " more";
  return count == 0 ? text : text + (count == 1 ? " waits behind it" : " wait behind it");
}

} // namespace

hang_verdict judge_hang(error why, rank from, const std::vector<open_operation>& all) {
  const open_operation* hanging = nullptr;
  std::vector<const open_operation*> each;
  for (const open_operation& one : all) {
    each.push_back(&one);
    if (is_open_at(one, from) && (hanging == nullptr || one.number < hanging->number)) hanging = &one;
  }
  if (hanging == nullptr) return {std::move(why)};
  for (bool moves = true; moves;) { // ends, because the numbers decrease
    moves = false;
    for (const open_operation* one : each)
      if (waits_behind(*hanging, *one)) {
        hanging = one;
        moves = true;
      }
  }
  const auto waiting = ranks_where(*hanging, [](const auto& at) { return at.has_launched && !at.has_finished; });
  const auto missing = ranks_where(*hanging, [](const auto& at) { return !at.has_launched; });
  const auto finished = ranks_where(*hanging, [](const auto& at) { return at.has_finished; });
  if (waiting.empty()) return {std::move(why)}; // no rank waits in it on its device, so no device hangs

  std::string text = name_of(*hanging) + " hangs: ";
  if (!missing.empty()) {
    text += name_ranks(missing) + (missing.size() == 1 ? " has" : " have") + " not launched it, and ";
    why.rank = missing.front();
  } else if (!finished.empty()) {
    text += name_ranks(finished) + (finished.size() == 1 ? " reports" : " report") + " to have finished it, and ";
    if (finished.size() <= waiting.size())
      why.rank = finished.front(); // its part may never have reached the device
    else
      why.rank = waiting.front();
  } else if (std::ranges::find(waiting, from) == waiting.end()) {
    why.rank = waiting.front();
  }
  text += name_ranks(waiting) + (waiting.size() == 1 ? " waits" : " wait") + " in it";
  text += name_waiting(*hanging, std::move(each));
  why.text = text + "; rank " + to_string(from) + " reported: " + why.text;
  hang_verdict made{std::move(why)};
  if (missing.empty() && hanging->ranks.size() == 2)
    made.ends = std::pair{hanging->ranks.front().rank, hanging->ranks.back().rank};
  return made;
}

} // namespace troupe
