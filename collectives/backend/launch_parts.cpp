#include <troupe/collectives/backend/launch_parts.hpp>
#include <troupe/collectives/operation/signature.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

void add(launch_parts& found, const operation& one) {
  if (const auto* several = std::get_if<group>(&one))
    for (const operation& part : several->parts) add(found, part);
  else if (std::holds_alternative<send>(one) || std::holds_alternative<recv>(one))
    found.transfers.push_back(&one);
  else
    found.collectives.push_back(&one);
}

} // namespace

std::optional<group> launch_copies_of(const operation& what, stream_ref stream) {
  const auto is_copy = [](const operation& part) { return std::holds_alternative<copy>(part); };
  const auto* several = std::get_if<group>(&what);
  if (several == nullptr || std::ranges::none_of(several->parts, is_copy)) return std::nullopt;
  group rest;
  for (const operation& part : several->parts) {
    if (const auto* move = std::get_if<copy>(&part))
      stream.copy(move->to.memory.data(), move->from.memory.data(), move->from.memory.size_bytes());
    else
      rest.parts.push_back(part);
  }
  return rest;
}

bool launch_with_copies(communicator& peers, const operation& what, stream_ref stream, completion_word at_end) {
  auto rest = launch_copies_of(what, stream);
  if (!rest) return peers.launch(what, stream, at_end);
  if (!rest->parts.empty()) peers.launch(operation{std::move(*rest)}, stream);
  return false;
}

std::size_t part_count(std::span<const operation* const> all) noexcept {
  std::size_t count = 0;
  for (const operation* one : all) {
    const auto* const several = std::get_if<group>(one);
    count += several != nullptr ? several->parts.size() : 1;
  }
  return count;
}

launch_parts parts_of_launch(std::span<const operation* const> all) {
  launch_parts found;
  found.collectives.reserve(part_count(all));
  for (const operation* one : all) add(found, *one);
  if (found.transfers.size() < 2) return found;
  std::vector<signature> asked;
  asked.reserve(found.transfers.size());
  for (const operation* one : found.transfers) asked.push_back(signatures_of(*one).front());
  std::vector<const operation*> ordered;
  ordered.reserve(asked.size());
  for (const std::size_t i : point_to_point_order(asked)) ordered.push_back(found.transfers[i]);
  found.transfers = std::move(ordered);
  return found;
}

} // namespace troupe
