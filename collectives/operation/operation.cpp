#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/operation/signature.hpp>

#include <array>

namespace troupe {

partition partition::packed(std::vector<std::size_t> counts) {
  partition made;
  made.displacements.reserve(counts.size());
  std::size_t next = 0;
  for (const std::size_t count : counts) {
    made.displacements.push_back(next);
    next += count;
  }
  made.counts = std::move(counts);
  return made;
}

operation::operation() noexcept = default;
operation::operation(const operation& other) = default;
operation::operation(operation&& other) noexcept = default;
operation& operation::operator=(const operation& other) = default;
operation& operation::operator=(operation&& other) noexcept = default;
operation::~operation() = default;

std::vector<const operation*> pointers_to(std::span<const operation> all) {
  std::vector<const operation*> made;
  made.reserve(all.size());
  for (const operation& one : all) made.push_back(&one);
  return made;
}

std::string_view name_of(const operation& what) noexcept {
  return what.valueless_by_exception() ? std::string_view{} : name_of_kind(what.index());
}

std::string_view name_of_kind(std::size_t index) noexcept {
  constexpr std::array<std::string_view, std::variant_size_v<operation::variant>> names{
      "all_reduce", "reduce",  "broadcast",    "all_gather",       "reduce_scatter", "all_to_all",
      "gather",     "scatter", "all_gather_v", "reduce_scatter_v", "all_to_all_v",   "gather_v",
      "scatter_v",  "send",    "recv",         "barrier",          "copy",           "group",
      "replay",     "call",    "agree"};
  return index < names.size() ? names[index] : std::string_view{};
}

std::string describe(const operation& what) {
  if (const auto* move = std::get_if<copy>(&what))
    return "copy of " + std::to_string(move->from.memory.size_bytes()) + " bytes";
  if (const auto* one = std::get_if<call>(&what))
    return "call of '" + (one->function ? one->function->name() : std::string{}) + "'";
  const auto* several = std::get_if<group>(&what);
  if (several == nullptr) return describe(signatures_of(what).front());
  std::string text = "group of " + std::to_string(several->parts.size());
  constexpr std::size_t most = 4;
  for (std::size_t i = 0; i < several->parts.size() && i < most; ++i)
    text += (i == 0 ? ": " : "; ") + describe(several->parts[i]);
  if (several->parts.size() > most) text += "; …";
  return text;
}

} // namespace troupe
