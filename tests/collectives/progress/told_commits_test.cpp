/// What processes know of the commits, and what all of them know (CUT-1).
#include <troupe/collectives/order/codec/report_codec.hpp>
#include <troupe/collectives/progress/told_commits.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::tests::told_commits_test {

namespace {

const lane step = lane::named("told/step");
const lane other = lane::named("told/other");

told_commits told(std::uint64_t of, std::uint64_t seen, std::optional<std::uint64_t> number) {
  return {.of = epoch{of}, .lanes = {{.where = step, .seen = seen, .number = number}}};
}
std::optional<std::uint64_t> last_of(const told_commits& all, const std::optional<lane>& where) {
  const auto found = std::ranges::find(all.lanes, where, &told_commit::where);
  return found == all.lanes.end() ? std::nullopt : found->number;
}
std::optional<std::uint64_t> common(const std::vector<told_commits>& all) {
  return last_of(common_commits(all), step);
}

} // namespace

TEST_CASE("the last commit that all processes of the latest epoch have seen is complete (CUT-1)",
          "[collectives][order][resume]") {
  CHECK(common({told(3, 2, 8), told(3, 1, 7), told(3, 2, 8)}) == 7);
  CHECK(common({told(3, 0, 6), told(3, 1, 7)}) == 6); // one has only been told of its predecessor
  SECTION("the numbers need not ascend") {
    CHECK(common({told(3, 2, 1), told(3, 1, 50)}) == 50);
  }
  SECTION("a process that was not part of that epoch has no vote") {
    CHECK(common({told_commits{}, told(3, 2, 8), told(2, 5, 4)}) == 8);
    CHECK(common_commits(std::vector{told_commits{}, told(3, 2, 8)}).of == epoch{3});
  }
  SECTION("a lane that one of them has not used has no commit") {
    CHECK(common({told(3, 1, 1), {.of = epoch{3}}}) == std::nullopt);
    CHECK(common({{.of = epoch{3}}, told(3, 1, 1)}) == std::nullopt);
  }
  SECTION("without processes, nothing is known") {
    CHECK(common_commits({}).of == epoch{});
    CHECK(common_commits({}).has_survivors);
  }
}

TEST_CASE("a process records the commits that it is told and those that succeed (CUT-1)",
          "[collectives][order][resume]") {
  const auto before = std::make_shared<const resume_points>(
      resume_points{.lanes = {{.where = step, .commit = 4}, {.where = other}}, .has_survivors = false});
  commit_record record{epoch{7}, before};
  CHECK(record.told().of == epoch{7});
  CHECK(last_of(record.told(), step) == 4);
  CHECK_FALSE(record.told().has_survivors);
  record.note(other, 1);
  record.note(std::nullopt, 2);
  record.note(std::nullopt, 3);
  CHECK(last_of(record.told(), step) == 4);
  CHECK(last_of(record.told(), other) == 1);
  CHECK(last_of(record.told(), std::nullopt) == 3);
  CHECK(record.told().has_survivors);

  SECTION("and another process reads them") {
    wire_writer out;
    commits_field(out, record.told());
    const std::string bytes = out.take();
    wire_reader in{bytes};
    told_commits read;
    commits_field(in, read);
    REQUIRE(in.ok());
    CHECK(in.at_end());
    CHECK(read.of == epoch{7});
    CHECK(read.lanes.size() == 3);
    CHECK(last_of(read, std::nullopt) == 3);
  }
}

TEST_CASE("that all who knew the commits are lost is told on, unless one of the latest epoch lives (CUT-1)",
          "[collectives][order][resume]") {
  told_commits lost = told(3, 1, 7);
  lost.has_survivors = false;
  CHECK_FALSE(common_commits(std::vector{lost, lost}).has_survivors);
  CHECK_FALSE(common_commits(std::vector{lost, told(2, 1, 7)}).has_survivors);
  CHECK(common_commits(std::vector{lost, told(3, 1, 7)}).has_survivors);
  CHECK(common_commits(std::vector{told(3, 1, 7), lost}).has_survivors);
}

TEST_CASE("a lane whose last commit is not known by number is not told (CUT-1)", "[collectives][order][resume]") {
  const told_commits known = common_commits(std::vector{told(3, 1, 7), told(3, 0, std::nullopt)});
  CHECK(known.lanes.empty());
  const told_commits of_points =
      commits_of({.lanes = {{.where = step, .commit = 4}, {.where = other}}, .has_survivors = false}, epoch{5});
  CHECK(of_points.of == epoch{5});
  CHECK_FALSE(of_points.has_survivors);
  REQUIRE(of_points.lanes.size() == 1);
  CHECK(of_points.lanes[0].where == step);
  CHECK(of_points.lanes[0].number == 4);
  CHECK(of_points.lanes[0].seen == 0);
  CHECK(commit_record{epoch{1}, nullptr}.told().has_survivors);
}

namespace {

std::shared_ptr<const agreed_value> value_at(std::uint64_t in, std::uint64_t position, std::string_view text) {
  auto made = std::make_shared<agreed_value>();
  made->epoch = epoch{in};
  made->position = position;
  const auto bytes = std::as_bytes(std::span{text});
  made->bytes.assign(bytes.begin(), bytes.end());
  return made;
}

std::vector<std::string> texts_of(const told_commits& all, const std::optional<lane>& where) {
  std::vector<std::string> made;
  const auto found = std::ranges::find(all.lanes, where, &told_commit::where);
  if (found == all.lanes.end()) return made;
  for (const auto& one : found->agreed) made.emplace_back(one->text());
  return made;
}

} // namespace

TEST_CASE("a value that one of several processes knows is told to all (CUT-1)", "[collectives][resume][agree][CUT-1]") {
  const lane where = lane::named("told/agree");
  commit_record first{epoch{3}, nullptr}, second{epoch{3}, nullptr}, old{epoch{2}, nullptr};
  CHECK(first.note(where, value_at(3, 7, "seven")));
  CHECK(second.note(where, value_at(3, 7, "seven")));
  CHECK(second.note(where, value_at(3, 9, "nine")));
  CHECK(second.note(std::nullopt, value_at(3, 0, "world")));
  CHECK(old.note(where, value_at(2, 5, "old")));
  const told_commits common = common_commits(std::vector{first.told(), second.told(), old.told()});
  CHECK(texts_of(common, where) == std::vector<std::string>{"seven", "nine"});
  CHECK(texts_of(common, std::nullopt) == std::vector<std::string>{"world"});
  CHECK(texts_of(common_commits(std::vector{second.told(), first.told()}), where) ==
        std::vector<std::string>{"seven", "nine"});
}

TEST_CASE("values of an epoch's resume points are told again, and the oldest of very many are forgotten",
          "[collectives][resume][agree]") {
  resume_points before;
  before.lanes.push_back({.where = std::nullopt, .agreed = {value_at(2, 4, "before")}});
  commit_record record{epoch{3}, std::make_shared<const resume_points>(before)};
  CHECK(texts_of(record.told(), std::nullopt) == std::vector<std::string>{"before"});
  for (std::size_t i = 0; i < most_kept_values; ++i) CHECK(record.note(std::nullopt, value_at(3, i, "x")));
  CHECK(texts_of(record.told(), std::nullopt).size() == most_kept_values);
  CHECK(texts_of(record.told(), std::nullopt).front() == "x");
  CHECK(record.note(std::nullopt, value_at(3, most_kept_values, std::string(most_kept_value_bytes, 'y'))));
  CHECK(texts_of(record.told(), std::nullopt).size() == 1);
}

TEST_CASE("a value ends those of earlier epochs in its lane, also where it has not arrived (CUT-1)",
          "[collectives][resume][agree][CUT-1]") {
  const auto before = std::make_shared<const resume_points>(
      resume_points{.lanes = {{.where = step, .agreed = {value_at(2, 4, "step")}, .agreed_unlisted = 5},
                              {.where = other, .agreed = {value_at(2, 7, "other")}}}});
  commit_record record{epoch{3}, before}, behind{epoch{3}, before};
  CHECK(record.note(step, value_at(3, 4, "new")));
  CHECK(texts_of(record.told(), step) == std::vector<std::string>{"new"});
  CHECK(texts_of(record.told(), other) == std::vector<std::string>{"other"});
  const told_commits common = common_commits(std::vector{behind.told(), record.told()});
  CHECK(texts_of(common, step) == std::vector<std::string>{"new"});
  CHECK(texts_of(common, other) == std::vector<std::string>{"other"});
}

TEST_CASE("no value is recorded after the report that tells the others (CUT-1)",
          "[collectives][resume][agree][CUT-1]") {
  commit_record record{epoch{3}, nullptr};
  CHECK(record.note(step, value_at(3, 4, "told")));
  CHECK(texts_of(record.seal(), step) == std::vector<std::string>{"told"});
  CHECK_FALSE(record.note(step, value_at(3, 5, "late")));
  CHECK(texts_of(record.told(), step) == std::vector<std::string>{"told"});
  CHECK(texts_of(record.seal(), step) == std::vector<std::string>{"told"});
}

TEST_CASE("values of the lane with the most are left out first, and counted", "[collectives][resume][agree]") {
  commit_record first{epoch{3}, nullptr}, second{epoch{3}, nullptr};
  CHECK(first.note(other, value_at(3, 0, "lone")));
  for (std::size_t i = 0; i < 700; ++i) {
    CHECK(first.note(step, value_at(3, i, "x")));
    CHECK(second.note(step, value_at(3, 700 + i, "x")));
  }
  told_commits common = common_commits(std::vector{first.told(), second.told()});
  CHECK(texts_of(common, other) == std::vector<std::string>{"lone"});
  CHECK(texts_of(common, step).size() == most_kept_values - 1);
  const auto unlisted = [&] { return std::ranges::find(common.lanes, step, &told_commit::where)->unlisted; };
  CHECK(unlisted() == 377);
  wire_writer out;
  commits_field(out, common);
  const std::string bytes = out.take();
  wire_reader in{bytes};
  commits_field(in, common = {});
  CHECK(unlisted() == 377);
}

} // namespace troupe::tests::told_commits_test
