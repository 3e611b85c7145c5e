#include <troupe/collectives/launch_parts.hpp>
#include <troupe/collectives/signature.hpp>

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

launch_parts parts_of_launch(std::span<const operation* const> all) {
  launch_parts found;
  found.collectives.reserve(all.size());
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
