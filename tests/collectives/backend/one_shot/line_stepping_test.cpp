// The protocol of lines, one access at a time: all interleavings, the end of a rank between any two accesses, aborts at
// any time, and planted faults that must each be found.
#include "collectives/backend/one_shot/line_stepping.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

namespace troupe::tests::line_stepping_test {

using namespace line_stepping;

namespace {

operation_bytes all(std::size_t bytes) {
  return [=](std::uint32_t, std::uint32_t) { return bytes; };
}

operation_bytes from_root(std::size_t bytes) {
  return [=](std::uint32_t source, std::uint32_t) { return source == 0 ? bytes : 0; };
}

operation_bytes to_root(std::size_t bytes) {
  return [=](std::uint32_t, std::uint32_t destination) { return destination == 0 ? bytes : 0; };
}

/// Two ranks whose blocks have two threads, each of which has at most one line.
scenario two_ranks() {
  return {.layout = {.ranks = 2, .blocks = 1, .lines_per_block = 2},
          .threads = 2,
          .operations = {all(16), all(8), all(0), from_root(16), all(16)}};
}

/// The same two operations before the wrap. Then all lines are used, those too that nobody has written since the
/// sequences were last 2 and 3.
scenario two_ranks_at_the_wrap() {
  scenario made = two_ranks();
  made.first_sequence = last_sequence - 1;
  made.has_old_lines = true;
  made.operations = {all(8), from_root(16), all(16), all(16), to_root(8)};
  return made;
}

scenario two_ranks_of_two_blocks() {
  return {.layout = {.ranks = 2, .blocks = 2, .lines_per_block = 1},
          .threads = 1,
          .operations = {all(8), from_root(8), all(0), all(8)}};
}

/// One rank sends, and two only receive.
scenario three_ranks() {
  return {.layout = {.ranks = 3, .blocks = 1, .lines_per_block = 2},
          .threads = 2,
          .operations = {from_root(16), all(0), from_root(8)}};
}

scenario three_ranks_at_the_wrap() {
  return {.layout = {.ranks = 3, .blocks = 1, .lines_per_block = 1},
          .threads = 1,
          .first_sequence = last_sequence - 1,
          .has_old_lines = true,
          .operations = {from_root(8), all(0), all(8), to_root(8)}};
}

exploration explore(scenario played, stops stopped, fault planted = fault::none) {
  played.stopped = stopped;
  played.planted = planted;
  return explorer{std::move(played)}.run();
}

scenario any_scenario() {
  return GENERATE(two_ranks(), two_ranks_at_the_wrap(), two_ranks_of_two_blocks(), three_ranks(),
                  three_ranks_at_the_wrap());
}

} // namespace

TEST_CASE("in every interleaving each rank receives the lines that were sent to it", "[collectives][one-shot]") {
  const auto found = explore(any_scenario(), stops::none);
  CAPTURE(found.states);
  CHECK(found.violation.empty());
  CAPTURE(found.violation);
  CHECK(found.states > 100);
  CHECK(found.completed > 0);
}

TEST_CASE("a rank that ends between any two accesses leaves no wrong lines behind", "[collectives][one-shot]") {
  const auto found = explore(any_scenario(), stops::kills);
  CAPTURE(found.states, found.violation);
  CHECK(found.violation.empty());
  CHECK(found.ends > found.completed);
}

TEST_CASE("an aborted block stores no more lines, and its rank completes nothing more", "[collectives][one-shot]") {
  const auto found = explore(any_scenario(), stops::aborts);
  CAPTURE(found.states, found.violation);
  CHECK(found.violation.empty());
  CHECK_FALSE(found.stores_after_abort);
  CHECK(found.ends > found.completed);
}

TEST_CASE("each planted fault of the protocol of lines is found in some interleaving", "[collectives][one-shot]") {
  struct planting {
    fault planted;
    scenario played;
    stops stopped;
    std::string says;
  };
  const std::string wrong = "a payload is not the one that was sent";
  const std::string deadlock = "deadlock";
  const std::string completes = "an operation completes after an aborted one";
  const auto one = GENERATE_COPY(
      planting{fault::second_half_unchecked, two_ranks(), stops::none, wrong},
      planting{fault::flag_before_payload, two_ranks(), stops::none, wrong},
      planting{fault::one_buffer, two_ranks(), stops::none, deadlock},
      planting{fault::no_empty_lines, two_ranks(), stops::none, deadlock},
      planting{fault::no_empty_lines, three_ranks(), stops::none, deadlock},
      planting{fault::zero_after_wrap, two_ranks_at_the_wrap(), stops::none, "a block ends without an abort"},
      planting{fault::one_after_wrap, two_ranks_at_the_wrap(), stops::none, deadlock},
      planting{fault::uncleared, two_ranks_at_the_wrap(), stops::none, wrong},
      planting{fault::cleared_early, two_ranks_at_the_wrap(), stops::none, deadlock},
      planting{fault::sequence_early, two_ranks(), stops::none, deadlock},
      planting{fault::boundary_without_fence, two_ranks(), stops::none, deadlock},
      planting{fault::boundary_without_fence, two_ranks_at_the_wrap(), stops::none, wrong},
      planting{fault::no_vote, two_ranks(), stops::aborts, completes},
      planting{fault::aborted_keeps_sequence, two_ranks(), stops::aborts, wrong},
      planting{fault::aborted_advances, two_ranks(), stops::aborts, completes});
  const auto found = explore(one.played, one.stopped, one.planted);
  CAPTURE(static_cast<int>(one.planted), found.states);
  CHECK(found.violation == one.says);
}

} // namespace troupe::tests::line_stepping_test
