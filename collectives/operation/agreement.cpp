#include <troupe/collectives/operation/agreement.hpp>

#include <troupe/device/enum_names.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

namespace {

constexpr std::size_t integer_bytes = sizeof(std::int64_t);

bool has_integers(agreement_rule rule) noexcept {
  return rule == agreement_rule::min || rule == agreement_rule::max || rule == agreement_rule::sum ||
         rule == agreement_rule::union_of;
}

std::int64_t integer_at(const std::vector<std::byte>& bytes, std::size_t place) noexcept {
  std::int64_t one = 0;
  std::memcpy(&one, bytes.data() + place * integer_bytes, integer_bytes);
  return one;
}

error invalid_agree(std::string text) {
  return {.code = errc::invalid_argument, .text = std::move(text)};
}

/// Combines the contributions byte by byte.
template <class Combine>
std::vector<std::byte> bytewise(std::span<const agree* const> all, Combine combine) {
  std::vector<std::byte> made = all.front()->value;
  for (const agree* one : all.subspan(1)) std::ranges::transform(made, one->value, made.begin(), combine);
  return made;
}

/// Combines the contributions integer by integer.
template <class Combine>
std::vector<std::byte> integerwise(std::span<const agree* const> all, Combine combine) {
  std::vector<std::byte> made = all.front()->value;
  for (const agree* one : all.subspan(1))
    for (std::size_t i = 0; i < made.size() / integer_bytes; ++i) {
      const std::int64_t both = combine(integer_at(made, i), integer_at(one->value, i));
      std::memcpy(made.data() + i * integer_bytes, &both, integer_bytes);
    }
  return made;
}

/// Merges one contribution after the other, so that no more is sorted at once than one rank contributes. Ends with the
/// first that makes the value too large.
std::vector<std::byte> union_of(std::span<const agree* const> all) {
  std::vector<std::int64_t> integers, own, both;
  for (const agree* one : all) {
    own.clear();
    for (std::size_t i = 0; i < one->value.size() / integer_bytes; ++i) own.push_back(integer_at(one->value, i));
    std::ranges::sort(own);
    own.erase(std::unique(own.begin(), own.end()), own.end());
    both.clear();
    std::ranges::set_union(integers, own, std::back_inserter(both));
    integers.swap(both);
    if (integers.size() > most_agreed_bytes / integer_bytes) break;
  }
  return contribution{integers}.bytes;
}

} // namespace

bool compares_sizes(agreement_rule rule) noexcept {
  return rule != agreement_rule::of_rank && rule != agreement_rule::union_of && rule != agreement_rule::gather_all;
}

std::size_t compared_bytes(const agree& one) noexcept {
  return compares_sizes(one.rule) ? one.value.size() : 0;
}

error objection_to(const agree& one) {
  if (to_string(one.rule).empty())
    return invalid_agree("rule " + std::to_string(static_cast<int>(one.rule)) +
                         " of an agree is unknown: choose one of " + listed(enum_names<agreement_rule>));
  if (one.value.size() > most_contributed_bytes)
    return invalid_agree("a rank contributes " + std::to_string(one.value.size()) +
                         " bytes to an agree, and the limit is " + std::to_string(most_contributed_bytes) +
                         ": pass more in memory, by a collective");
  if (has_integers(one.rule) && one.value.size() % integer_bytes != 0)
    return invalid_agree("a rank contributes " + std::to_string(one.value.size()) + " bytes to an agree by " +
                         std::string{to_string(one.rule)} + ", which takes whole 64-bit integers");
  return {};
}

agree stand_in_for(const agree& one) {
  return {.rule = to_string(one.rule).empty() ? agreement_rule::of_rank : one.rule};
}

error no_agreed_order() {
  return {.code = errc::unsupported,
          .text =
              "an agree is decided where requests are ordered, and under ordering::caller they are not: set ordering "
              "to agreed"};
}

error no_launch_of_agree() {
  return {.code = errc::unsupported,
          .text = "an agree is not launched, so no event can stand behind it: use ask() or agree()"};
}

std::variant<agreed_value, error> agreed_value_of(std::span<const agree* const> all) {
  agreed_value made;
  const agree& first = *all.front();
  if (first.rule == agreement_rule::of_rank &&
      (first.root.value() < 0 || static_cast<std::size_t>(first.root.value()) >= all.size()))
    return invalid_agree("root " + to_string(first.root) + " is not in this world: its ranks are 0 to " +
                         std::to_string(all.size() - 1));
  switch (first.rule) {
    case agreement_rule::of_rank: made.bytes = all[static_cast<std::size_t>(first.root.value())]->value; break;
    case agreement_rule::any_of: made.bytes = bytewise(all, std::bit_or<>{}); break;
    case agreement_rule::all_of: made.bytes = bytewise(all, std::bit_and<>{}); break;
    case agreement_rule::min:
      made.bytes = integerwise(all, [](std::int64_t a, std::int64_t b) { return std::min(a, b); });
      break;
    case agreement_rule::max:
      made.bytes = integerwise(all, [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
      break;
    case agreement_rule::sum: // unsigned, because it wraps
      made.bytes = integerwise(all, [](std::int64_t a, std::int64_t b) {
        return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
      });
      break;
    case agreement_rule::union_of: made.bytes = union_of(all); break;
    case agreement_rule::gather_all:
      for (const agree* one : all) {
        made.bytes.insert(made.bytes.end(), one->value.begin(), one->value.end());
        made.part_sizes.push_back(static_cast<std::uint32_t>(one->value.size()));
      }
      break;
  }
  if (made.bytes.size() <= most_agreed_bytes) return made;
  return invalid_agree("the value of an agree by " + std::string{to_string(first.rule)} + " has " +
                       std::to_string(made.bytes.size()) + " bytes, and the limit is " +
                       std::to_string(most_agreed_bytes) + ": contribute less, or pass it in memory, by a collective");
}

} // namespace troupe
