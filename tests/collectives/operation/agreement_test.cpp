// What value an agree makes of the ranks' contributions, and what a rank cannot contribute.
#include <troupe/collectives/operation/agreement.hpp>
#include <troupe/collectives/operation/compact_signature.hpp>
#include <troupe/collectives/operation/signature.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

namespace troupe::tests::agreement_test {

namespace {

using Catch::Matchers::ContainsSubstring;
using integers = std::vector<std::int64_t>;

constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();

std::variant<agreed_value, error> result_of(agreement rule, const std::vector<contribution>& all) {
  std::vector<agree> parts;
  for (const contribution& one : all) parts.push_back({rule.rule, one.bytes, rule.root});
  std::vector<const agree*> pointers;
  for (const agree& one : parts) pointers.push_back(&one);
  return agreed_value_of(pointers);
}

agreed_value value_of(agreement rule, const std::vector<contribution>& all) {
  return std::get<agreed_value>(result_of(rule, all));
}

contribution filled(std::size_t size, int with = 1) {
  return std::vector<std::byte>(size, static_cast<std::byte>(with));
}

} // namespace

TEST_CASE("the value of one rank is taken as it is, whatever the others contribute", "[collectives][agree]") {
  const std::vector<contribution> all{"zero", "", "the plan"};
  CHECK(value_of(agreement::of_rank(rank{0}), all).text() == "zero");
  CHECK(value_of(agreement::of_rank(rank{1}), all).text().empty());
  CHECK(value_of(agreement::of_rank(rank{2}), all).text() == "the plan");
}

TEST_CASE("bits are combined byte by byte", "[collectives][agree]") {
  const std::vector<contribution> all{std::string_view{"\x0f\x01\x80", 3}, std::string_view{"\xf0\x01\x81", 3}};
  CHECK(value_of(agreement_rule::any_of, all).text() == std::string_view{"\xff\x01\x81", 3});
  CHECK(value_of(agreement_rule::all_of, all).text() == std::string_view{"\x00\x01\x80", 3});
  CHECK(value_of(agreement_rule::any_of, {"", ""}).bytes.empty());
}

TEST_CASE("integers are combined place by place, with their sign, and sums wrap", "[collectives][agree]") {
  const std::vector<contribution> all{integers{3, -1, highest}, integers{2, 5, 1}, integers{7, -9, 0}};
  CHECK(value_of(agreement_rule::min, all).integers() == integers{2, -9, 0});
  CHECK(value_of(agreement_rule::max, all).integers() == integers{7, 5, highest});
  CHECK(value_of(agreement_rule::sum, all).integers() == integers{12, -5, lowest});
  CHECK(value_of(agreement_rule::min, {4, -4}).integer() == -4);
  CHECK(value_of(agreement_rule::sum, {contribution{}, contribution{}}).integer() == 0);
}

TEST_CASE("a union has each integer once, in ascending order", "[collectives][agree]") {
  const std::vector<contribution> all{integers{9, -3, 9}, integers{}, integers{4, -3}};
  CHECK(value_of(agreement_rule::union_of, all).integers() == integers{-3, 4, 9});
  std::vector<contribution> many(17);
  std::int64_t next = 0;
  for (contribution& one : many) {
    integers own;
    for (std::size_t i = 0; i < most_contributed_bytes / sizeof next; ++i) own.push_back(--next);
    one = contribution{own};
  }
  CHECK(std::get<error>(result_of(agreement_rule::union_of, many)).code == errc::invalid_argument);
  many.pop_back();
  const integers most = value_of(agreement_rule::union_of, many).integers();
  CHECK(most.size() == most_agreed_bytes / sizeof next);
  CHECK(std::ranges::is_sorted(most));
}

TEST_CASE("all contributions are gathered in rank order, empty ones too", "[collectives][agree]") {
  const agreed_value all = value_of(agreement_rule::gather_all, {"ab", "", "c"});
  CHECK(all.text() == "abc");
  const auto parts = all.parts();
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].size() == 2);
  CHECK(parts[1].empty());
  CHECK(parts[2].data() == all.bytes.data() + 2);
  agreed_value wrong = all;
  wrong.part_sizes = {2, 9, 1};
  REQUIRE(wrong.parts().size() == 3);
  CHECK(wrong.parts()[1].size() == 1);
  CHECK(wrong.parts()[2].empty());
}

TEST_CASE("an integer that has no signed form is not contributed", "[collectives][agree]") {
  CHECK(contribution{std::uint64_t{highest}}.bytes == contribution{highest}.bytes);
  CHECK(contribution{true}.bytes == contribution{1}.bytes);
  CHECK_THROWS_AS(contribution{std::uint64_t{1} << 63U}, exception);
  CHECK_THROWS_AS(contribution{std::numeric_limits<std::uint64_t>::max()}, exception);
}

TEST_CASE("only an of_rank uses the root", "[collectives][agree][ORD-2]") {
  const operation one = agree{agreement_rule::min, filled(8).bytes, rank{0}};
  const operation other = agree{agreement_rule::min, filled(8).bytes, rank{7}};
  CHECK(compact(one) == compact(other));
  CHECK_FALSE(check_agreement(std::vector{signatures_of(one), signatures_of(other)}));
  const agree part{agreement_rule::any_of, filled(1).bytes, rank{7}};
  const std::vector<const agree*> all{&part, &part};
  CHECK(std::get<agreed_value>(agreed_value_of(all)).bytes == part.value);
}

TEST_CASE("a value of more bytes than the limit is refused, and one of as many is not", "[collectives][agree]") {
  const std::vector<contribution> most(16, filled(most_contributed_bytes));
  CHECK(value_of(agreement_rule::gather_all, most).bytes.size() == most_agreed_bytes);
  std::vector<contribution> more = most;
  more.push_back(filled(1));
  const error why = std::get<error>(result_of(agreement_rule::gather_all, more));
  CHECK(why.code == errc::invalid_argument);
  CHECK_THAT(why.text, ContainsSubstring("65537 bytes, and the limit is 65536"));
}

TEST_CASE("a rank cannot contribute too much, half integers, or by an unknown rule", "[collectives][agree]") {
  CHECK_FALSE(objection_to(agree{agreement_rule::of_rank, filled(most_contributed_bytes).bytes}));
  CHECK(objection_to(agree{agreement_rule::of_rank, filled(most_contributed_bytes + 1).bytes}).code ==
        errc::invalid_argument);
  for (const auto rule : {agreement_rule::min, agreement_rule::max, agreement_rule::sum, agreement_rule::union_of}) {
    CHECK(objection_to(agree{rule, filled(12).bytes}).code == errc::invalid_argument);
    CHECK_FALSE(objection_to(agree{rule, filled(16).bytes}));
  }
  CHECK_FALSE(objection_to(agree{agreement_rule::any_of, filled(12).bytes}));
  CHECK(objection_to(agree{static_cast<agreement_rule>(8), {}}).code == errc::invalid_argument);
}

TEST_CASE("ranks agree on rule, root and, where the rule needs it, size (ORD-2)", "[collectives][agree][ORD-2]") {
  const auto check = [](agree one, agree other) {
    return check_agreement(std::vector<operation>{std::move(one), std::move(other)});
  };
  CHECK_FALSE(check({agreement_rule::any_of, filled(3).bytes}, {agreement_rule::any_of, filled(3, 9).bytes}));
  CHECK_FALSE(check({agreement_rule::gather_all, filled(3).bytes}, {agreement_rule::gather_all, {}}));
  CHECK_FALSE(check({agreement_rule::of_rank, filled(3).bytes}, {agreement_rule::of_rank, {}}));
  const error rules = check({agreement_rule::min, filled(8).bytes}, {agreement_rule::max, filled(8).bytes});
  CHECK(rules.code == errc::mismatch);
  CHECK_THAT(rules.text, ContainsSubstring("rank 0 asks for agree by min, 8 bytes, rank 1 for agree by max, 8 bytes"));
  const error roots = check({agreement_rule::of_rank, {}, rank{0}}, {agreement_rule::of_rank, {}, rank{1}});
  CHECK(roots.code == errc::mismatch);
  CHECK_THAT(roots.text, ContainsSubstring("agree by of_rank 0") && ContainsSubstring("agree by of_rank 1"));
  CHECK(check({agreement_rule::all_of, filled(8).bytes}, {agreement_rule::all_of, filled(9).bytes}).code ==
        errc::mismatch);
  CHECK(check_agreement(std::vector<operation>{agree{}, barrier{}}).code == errc::mismatch);
}

} // namespace troupe::tests::agreement_test
