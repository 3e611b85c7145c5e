// Composed operations over any nodes: as the operation says, chosen alike by all ranks.
#include "properties/property.hpp"
#include "support/played_hierarchy.hpp"

#include <set>

using namespace troupe;
using namespace troupe::tests;

namespace {

std::vector<int> drawn_nodes() {
  const int rank_count = *rc::gen::inRange(2, 10), node_count = *rc::gen::inRange(1, 5);
  const bool round_robin = *rc::gen::arbitrary<bool>();
  std::vector<int> nodes;
  for (int r = 0; r < rank_count; ++r) nodes.push_back(round_robin ? r % node_count : *rc::gen::inRange(0, node_count));
  if (*rc::gen::arbitrary<bool>()) std::ranges::sort(nodes);
  return nodes;
}

case_choice drawn_choice(std::size_t ranks) {
  case_choice choice{.kind = *rc::gen::inRange(std::size_t{0}, std::size_t{10}), .ranks = ranks};
  choice.count = *rc::gen::inRange(std::size_t{0}, std::size_t{70});
  choice.root = *rc::gen::inRange(std::size_t{0}, ranks);
  choice.op = *rc::gen::elementOf(std::vector<reduction>(std::begin(all_reductions), std::end(all_reductions)));
  choice.in_place = *rc::gen::arbitrary<bool>();
  choice.gap = *rc::gen::inRange(std::size_t{0}, std::size_t{3});
  if (choice.kind >= 8)
    for (std::size_t r = 0; r < ranks; ++r)
      choice.counts.push_back(*rc::gen::arbitrary<bool>() ? 0 : *rc::gen::inRange(std::size_t{0}, std::size_t{40}));
  return choice;
}

} // namespace

TEST_CASE("property: over any nodes, what is composed leaves all memory as the operation says",
          "[properties][collectives][hierarchy]") {
  check_property(
      "composed operations",
      [] {
        const node_map nodes{drawn_nodes()};
        const case_choice choice = drawn_choice(nodes.size());
        const std::size_t room = *rc::gen::inRange(std::size_t{0}, std::size_t{200});
        const hierarchy_terms terms{
            .mode = *rc::gen::elementOf(std::vector{hierarchy_mode::always, hierarchy_mode::automatic}),
            .min_bytes = *rc::gen::inRange(std::size_t{0}, std::size_t{800}),
            .scratch_bytes = room * sizeof(double)};
        const auto seen = play(make_case(choice, room), nodes, terms, *rc::gen::arbitrary<bool>());
        RC_TAG(seen.composed ? "composed" : "left alone");
        if (!seen.fault.empty()) RC_FAIL(seen.fault);
      },
      20);
}

TEST_CASE("property: a map of nodes has each rank once, and is even and in rank order where it says so",
          "[properties][collectives][hierarchy]") {
  check_property("maps of nodes", [] {
    const auto names = drawn_nodes();
    const node_map nodes{names};
    std::set<std::size_t> seen;
    std::vector<std::size_t> node_by_node;
    bool is_even = true;
    for (std::size_t node = 0; node < nodes.node_count(); ++node) {
      is_even = is_even && nodes.members(node).size() == nodes.members(0).size();
      for (std::size_t index = 0; index < nodes.members(node).size(); ++index) {
        const std::size_t member = nodes.members(node)[index];
        RC_ASSERT(seen.insert(member).second);
        RC_ASSERT(nodes.node_of(member) == node);
        RC_ASSERT(nodes.index_of(member) == index);
        RC_ASSERT(names[member] == names[nodes.members(node).front()]);
        node_by_node.push_back(member);
      }
    }
    RC_ASSERT(seen.size() == names.size());
    RC_ASSERT(nodes.is_even() == is_even);
    RC_ASSERT(nodes.is_in_rank_order() == std::ranges::is_sorted(node_by_node));
  });
}
