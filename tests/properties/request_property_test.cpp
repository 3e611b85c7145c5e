// Requests of any mix and shape, on the mock: exactly the right memory, or a refusal that touches none.
#include "properties/drawn_request.hpp"
#include "properties/property.hpp"
#include "support/runtimes.hpp"

#include <troupe/collectives/operation/signature.hpp>

#include <cstring>
#include <map>
#include <memory>

using namespace troupe;
using troupe::tests::check_property;
using troupe::tests::drawn_request;

namespace {

/// A world of pretend devices that serves many cases, with memory for each rank.
struct served_world {
  explicit served_world(int size) : here{tests::mock_settings(size)}, whole{here.form_world()} {
    for (const rank self : whole.local_ranks()) arenas.push_back(whole.allocate(self, tests::arena_bytes));
  }

  void fill(const drawn_request& with) const {
    for (std::size_t r = 0; r < arenas.size(); ++r)
      std::memcpy(arenas[r].data(), with.before[r].data(), with.before[r].size());
  }
  /// The first byte that is not as \p wanted, or nothing.
  [[nodiscard]] std::string difference(const std::vector<std::vector<std::byte>>& wanted) const {
    for (std::size_t r = 0; r < arenas.size(); ++r)
      for (std::size_t i = 0; i < wanted[r].size(); ++i)
        if (arenas[r].data()[i] != wanted[r][i])
          return "rank " + std::to_string(r) + ", byte " + std::to_string(i) + ": " +
                 std::to_string(std::to_integer<int>(arenas[r].data()[i])) + " instead of " +
                 std::to_string(std::to_integer<int>(wanted[r][i]));
    return {};
  }

  runtime here;
  world whole;
  std::vector<buffer> arenas;
};

/// Worlds of several sizes, each formed once.
class served_worlds {
public:
  served_world& of(int size) {
    auto& one = worlds_[size];
    if (!one) one = std::make_unique<served_world>(size);
    return *one;
  }

private:
  std::map<int, std::unique_ptr<served_world>> worlds_;
};

std::string describe_all(const std::vector<operation>& asked) {
  std::string text;
  for (const operation& one : asked) text += describe(one) + '\n';
  return text;
}

std::string text_of(const error& failure) {
  return failure ? to_string(failure) : "";
}

} // namespace

TEST_CASE("property: any request that the ranks agree on leaves exactly the right memory, guards included (GRP-1)",
          "[properties][runtime]") {
  served_worlds worlds;
  check_property(
      "agreed requests",
      [&] {
        served_world& here = worlds.of(*rc::gen::inRange(1, 5));
        const auto parts = tests::draw_parts(here.whole.size(), 6);
        const drawn_request request = tests::lay_out(parts, here.arenas, *rc::gen::arbitrary<bool>());
        RC_LOG() << describe_all(request.asked);
        here.fill(request);
        RC_ASSERT(text_of(tests::failure_of(here.whole.ask(request.asked))) == "");
        RC_ASSERT(here.difference(request.after) == "");
      },
      5);
}

TEST_CASE("property: a request with one planted difference is refused, touches nothing, and the next one is served",
          "[properties][runtime][ORD-2]") {
  served_worlds worlds;
  check_property(
      "planted mismatches",
      [&] {
        served_world& here = worlds.of(*rc::gen::inRange(2, 5));
        const auto parts = tests::draw_parts(here.whole.size(), 4);
        const drawn_request request = tests::lay_out(parts, here.arenas, *rc::gen::arbitrary<bool>());
        std::vector<operation> wrong = request.asked;
        RC_PRE(tests::plant_mismatch(wrong));
        RC_LOG() << describe_all(request.asked) << "and instead\n" << describe_all(wrong);
        here.fill(request);
        const error refusal = tests::failure_of(here.whole.ask(wrong));
        RC_LOG() << text_of(refusal);
        RC_ASSERT(refusal.code == errc::mismatch);
        RC_ASSERT(refusal.effect == effect::rejected);
        RC_ASSERT(here.difference(request.before) == "");
        RC_ASSERT(text_of(tests::failure_of(here.whole.ask(request.asked))) == "");
        RC_ASSERT(here.difference(request.after) == "");
      },
      5);
}
