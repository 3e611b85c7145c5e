// The ring's protocol, one load and store at a time: all interleavings, an end of either side between any two steps,
// and planted faults that must each be found.
#include "processes/transport/stepping.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <chrono>

namespace troupe::tests::ring_stepping_test {

using namespace stepping;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr ring_layout layout{.capacity_words = capacity_words, .seed = 7, .most_bytes = 16};

/// Payloads of these sizes. Each word is what a sequence word at its place would be in the next round, so that a word
/// that is left over is taken for a record.
std::vector<std::string> payloads(const std::vector<std::size_t>& sizes) {
  std::vector<std::string> all;
  std::uint64_t position = 0;
  for (const std::size_t size : sizes) {
    std::string bytes;
    for (std::uint64_t at = position + ring_layout::record_words; bytes.size() < size; ++at) {
      const std::uint64_t word = at + capacity_words + 1;
      bytes.append(reinterpret_cast<const char*>(&word), 8);
    }
    bytes.resize(size);
    all.push_back(bytes);
    position += ring_layout::words_of(size);
  }
  return all;
}

/// Writes all records and rings after each. Finds the ring full at most \p patience times, then gives up.
program writes(const std::vector<std::string>& sent, int patience) {
  return [=](stepped_words::side_state& self, observed& into) {
    ring_writer writer{stepped_words{self, false}, layout};
    doorbell_caller caller{stepped_words{self, true}};
    int left = patience;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      const std::string& one = sent[i];
      self.checkpoint(std::to_string(i) + ' ' + std::to_string(left) + ' ' + std::to_string(writer.read_words()));
      auto got = writer.write(one, false);
      while (got == ring_write::full && left-- > 0) got = writer.write(one, false);
      into.is_forged = got == ring_write::forged;
      if (got != ring_write::written) return;
      caller.ring();
    }
  };
}

/// Reads until it has this many records, or until a sleep has lasted its whole time and there is nothing. Parks
/// whenever there is nothing.
program reads(std::size_t count) {
  return [=](stepped_words::side_state& self, observed& into) {
    ring_reader reader{stepped_words{self, false}, layout};
    doorbell_sleeper sleeper{stepped_words{self, true}};
    while (into.received.size() < count) {
      self.checkpoint(std::to_string(into.received.size()) + (self.has_timed_out ? " timed out" : ""));
      std::string record;
      const auto got = reader.read(record);
      if (got == ring_read::forged) {
        into.is_forged = true;
        return;
      }
      if (got != ring_read::empty) {
        into.received.push_back(record);
        continue;
      }
      if (self.has_timed_out) return;
      sleeper.park([&] { return reader.has_news(); }, 1ms);
    }
  };
}

exploration explore(const std::vector<std::size_t>& sizes, fault planted, bool kills) {
  const auto sent = payloads(sizes);
  return explorer{writes(sent, 3), reads(sent.size()), sent, planted, kills}.run();
}

/// Enough records to go round the ring once and a half; payloads of no bytes, an odd number, a word and the maximum.
const std::vector<std::size_t> over_the_end{8, 0, 13, 16, 1};

} // namespace

TEST_CASE("in every interleaving a reader receives what was sent, in order and whole", "[collectives][ring][ORD-1]") {
  const auto found = explore(over_the_end, fault::none, false);
  CHECK(found.violation.empty());
  CAPTURE(found.violation);
  CHECK(found.states > 1000);
  CHECK(found.ends > 0);
}

TEST_CASE("a side that ends between any two of its steps leaves whole records behind", "[collectives][ring][ORD-1]") {
  const auto found = explore({8, 0, 13, 16}, fault::none, true);
  CAPTURE(found.violation);
  CHECK(found.violation.empty());
  CHECK(found.states > 1000);
}

TEST_CASE("each planted fault of the ring's protocol is found in some interleaving", "[collectives][ring][ORD-1]") {
  struct planting {
    fault planted;
    const char* says;
  };
  const auto one = GENERATE(
      planting{fault::publish_unreleased, "found a fault"}, planting{fault::sequence_unacquired, "found a fault"},
      planting{fault::reused_slot, "found a fault"}, planting{fault::consumed_early, "found a fault"},
      planting{fault::fence_dropped, "a wake-up is lost"}, planting{fault::announce_not_sc, "a wake-up is lost"},
      planting{fault::news_not_sc, "a wake-up is lost"}, planting{fault::announce_dropped, "a wake-up is lost"},
      planting{fault::count_dropped, "a wake-up is lost"}, planting{fault::wake_dropped, "a wake-up is lost"});
  const auto found = explore(over_the_end, one.planted, false);
  CAPTURE(static_cast<int>(one.planted), found.states);
  CHECK_THAT(found.violation, ContainsSubstring(one.says));
}

} // namespace troupe::tests::ring_stepping_test
