// The judge of a stress run finds each way in which ranks may differ, and survives the death of a process.
#include <troupe/program/stress/receipts.hpp>
#include <troupe/program/stress/stress_order.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace troupe::tests {

namespace {

using namespace program;
using Catch::Matchers::ContainsSubstring;

agreed_value value_of_receipt(std::uint64_t in, std::uint64_t position, const std::string& text) {
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return {.epoch = epoch{in}, .position = position, .bytes = {begin, begin + text.size()}};
}

receipt answer_receipt(int rank, std::uint64_t in, std::uint64_t step, std::uint64_t position,
                       const std::string& text) {
  return {.kind = receipt_kind::answered,
          .world = "whole",
          .where = "steps",
          .rank = rank,
          .epoch = epoch{in},
          .step = step,
          .value = value_of_receipt(in, position, text)};
}

receipt points_receipt(std::uint64_t in, std::uint64_t complete, std::vector<agreed_value> values = {},
                       std::optional<std::uint64_t> commit = {}) {
  resume_point lane_point{.where = lane::named("steps"), .complete = complete, .commit = commit};
  for (agreed_value& one : values) lane_point.agreed.push_back(std::make_shared<agreed_value>(std::move(one)));
  resume_points all{.lanes = {std::move(lane_point)}};
  return {.kind = receipt_kind::resumed,
          .world = "whole",
          .epoch = epoch{in},
          .points = std::make_shared<resume_points>(std::move(all))};
}

/// The receipts of several processes, and what the judge says of them.
struct judged_receipts {
  receipt_judge judge{{.commit_every = 4}};

  judged_receipts& take(const std::string& process, receipt one) {
    judge.take(process, one);
    return *this;
  }
  /// Returns the only fault; an empty string if there is none.
  std::string only_fault() {
    judge.finish();
    REQUIRE(judge.sum().faults <= 1);
    return judge.faults().empty() ? "" : judge.faults().front();
  }
};

} // namespace

TEST_CASE("receipts are read in their order, whole ones only, while they are written", "[receipts]") {
  const log_folder folder;
  receipt_log log{folder.path(), "3"};
  receipt_reader reader{folder.path()};
  std::vector<receipt> seen;
  std::string from;
  const auto read = [&] {
    reader.read([&](const std::string& process, const receipt& one) {
      from = process;
      seen.push_back(one);
    });
  };
  log.write(answer_receipt(2, 5, 7, 9, "plan"));
  log.write(points_receipt(6, 9, {value_of_receipt(5, 9, "plan")}, 8));
  read();
  REQUIRE(seen.size() == 2);
  CHECK(from == receipts_name("3", ::getpid()));
  CHECK(seen[0].value == value_of_receipt(5, 9, "plan"));
  CHECK(seen[0].rank == 2);
  CHECK(seen[0].step == 7);
  CHECK(seen[0].at_ns > 0);
  REQUIRE(seen[1].points);
  CHECK(*seen[1].points->lanes.at(0).agreed.at(0) == value_of_receipt(5, 9, "plan"));

  // A process that is killed may leave the beginning of a receipt.
  log.write({.kind = receipt_kind::fault, .text = "it was killed within this text"});
  const auto path = std::filesystem::path{folder.path()} / from;
  const auto whole = std::filesystem::file_size(path);
  std::string bytes(whole, '\0');
  std::ifstream{path, std::ios::binary}.read(bytes.data(), static_cast<std::streamsize>(whole));
  std::filesystem::resize_file(path, whole - 5);
  read();
  CHECK(seen.size() == 2);
  std::ofstream{path, std::ios::binary | std::ios::app} << bytes.substr(whole - 5);
  read();
  REQUIRE(seen.size() == 3);
  CHECK(seen[2].text == "it was killed within this text");
}

TEST_CASE("receipts of ranks that agree, also through a fault, have no fault", "[receipts]") {
  judged_receipts all;
  all.take("0-1", answer_receipt(0, 1, 0, 0, "a")).take("1-2", answer_receipt(1, 1, 0, 0, "a"));
  all.take("0-1", answer_receipt(0, 1, 1, 2, "b")); // its peer gets no reply
  all.take("0-1", points_receipt(2, 1, {value_of_receipt(1, 2, "b")}))
      .take("1-2", points_receipt(2, 1, {value_of_receipt(1, 2, "b")}));
  all.take("0-1", answer_receipt(0, 2, 1, 1, "c")).take("1-2", answer_receipt(1, 2, 1, 1, "c"));
  CHECK(all.only_fault().empty());
  CHECK(all.judge.sum().positions == 3);
  CHECK(all.judge.sum().told_anew == 1);
}

TEST_CASE("two values for one position are found, in replies, in what is told, and in what drivers hear",
          "[receipts]") {
  SECTION("in the replies of two ranks") {
    CHECK_THAT(judged_receipts{}
                   .take("0-1", answer_receipt(0, 1, 0, 4, "a"))
                   .take("1-2", answer_receipt(1, 1, 0, 4, "b"))
                   .only_fault(),
               ContainsSubstring("two values at position 4") && ContainsSubstring("0-1") && ContainsSubstring("1-2"));
  }
  SECTION("in the reply of a process that is dead, and in what the next epoch is told") {
    CHECK_THAT(judged_receipts{}
                   .take("0-1", answer_receipt(0, 1, 0, 4, "a"))
                   .take("1-2", points_receipt(2, 3, {value_of_receipt(1, 4, "x")}))
                   .only_fault(),
               ContainsSubstring("two values at position 4"));
  }
  SECTION("in what a driver has heard") {
    receipt heard = answer_receipt(-1, 1, 0, 4, "x");
    heard.kind = receipt_kind::heard;
    CHECK_THAT(judged_receipts{}.take("0-1", answer_receipt(0, 1, 0, 4, "a")).take("driver-9", heard).only_fault(),
               ContainsSubstring("two values at position 4"));
  }
}

TEST_CASE("a value at two positions, an answer given twice and positions out of order are found", "[receipts]") {
  CHECK_THAT(judged_receipts{}
                 .take("0-1", answer_receipt(0, 1, 0, 4, "a"))
                 .take("1-2", answer_receipt(1, 1, 1, 5, "a"))
                 .only_fault(),
             ContainsSubstring("one value"));
  judged_receipts twice;
  twice.take("0-1", answer_receipt(0, 1, 0, 4, "a")).take("0-1", answer_receipt(0, 1, 0, 4, "a"));
  CHECK_THAT(twice.only_fault(), ContainsSubstring("answered twice to 0-1"));
  CHECK_THAT(judged_receipts{}
                 .take("0-1", answer_receipt(0, 1, 0, 4, "a"))
                 .take("0-1", answer_receipt(0, 1, 1, 3, "b"))
                 .only_fault(),
             ContainsSubstring("opposite order"));
  CHECK_THAT(judged_receipts{}
                 .take("0-1", answer_receipt(0, 1, 0, 4, "a"))
                 .take("1-2", answer_receipt(1, 1, 1, 4, "a"))
                 .only_fault(),
             ContainsSubstring("with the value of step 0"));
}

TEST_CASE("a value beside a refusal, and two reasons of a refusal, are found", "[receipts]") {
  receipt refused = answer_receipt(1, 1, 3, 0, "");
  refused.kind = receipt_kind::refused;
  refused.text = "deadline_exceeded";
  CHECK_THAT(judged_receipts{}.take("0-1", answer_receipt(0, 1, 3, 4, "a")).take("1-2", refused).only_fault(),
             ContainsSubstring("was refused as deadline_exceeded to 1-2, and 0-1 has received a value"));
  // At the end of an epoch each rank may have another reason, but it must be right about the effect (ONE-2).
  receipt rejected = refused;
  rejected.kind = receipt_kind::rejected;
  rejected.text = "rebuilding";
  CHECK_THAT(judged_receipts{}.take("1-2", rejected).take("0-1", answer_receipt(0, 1, 3, 4, "a")).only_fault(),
             ContainsSubstring("was refused as rebuilding to 1-2, and 0-1 has received a value"));
  receipt of_another = rejected;
  of_another.text = "stale_epoch";
  CHECK(judged_receipts{}
            .take("1-2", rejected)
            .take("2-3", of_another)
            .take("0-1", answer_receipt(0, 2, 3, 4, "a"))
            .only_fault()
            .empty());
  receipt otherwise = refused;
  otherwise.text = "cancelled";
  CHECK_THAT(judged_receipts{}.take("0-1", refused).take("1-2", otherwise).only_fault(),
             ContainsSubstring("and as cancelled"));
}

TEST_CASE("resume points that differ, lose a value or forget a commit are found (CUT-1)", "[receipts]") {
  CHECK_THAT(judged_receipts{}.take("0-1", points_receipt(2, 1)).take("1-2", points_receipt(2, 2)).only_fault(),
             ContainsSubstring("other resume points"));
  CHECK_THAT(
      judged_receipts{}.take("0-1", answer_receipt(0, 1, 0, 4, "a")).take("1-2", points_receipt(2, 4)).only_fault(),
      ContainsSubstring("is not told in epoch 2"));
  CHECK(judged_receipts{}
            .take("0-1", answer_receipt(0, 1, 0, 4, "a"))
            .take("1-2", points_receipt(2, 5))
            .only_fault()
            .empty());
  const auto committed = [](std::uint64_t number) {
    receipt one = answer_receipt(0, 1, number, 0, "");
    one.kind = receipt_kind::committed;
    return one;
  };
  CHECK_THAT(judged_receipts{}.take("0-1", committed(11)).take("1-2", points_receipt(2, 4, {}, 3)).only_fault(),
             ContainsSubstring("is told commit 3"));
  CHECK(judged_receipts{}.take("0-1", committed(11)).take("1-2", points_receipt(2, 4, {}, 7)).only_fault().empty());
  // A process that replaces the only one that knew a commit begins before it, and says so.
  receipt without_survivors = points_receipt(2, 0);
  auto points = std::make_shared<resume_points>(*without_survivors.points);
  points->has_survivors = false;
  without_survivors.points = points;
  const auto replaced = [&](std::uint64_t told) {
    receipt later = committed(6);
    later.epoch = epoch{2};
    judged_receipts all;
    all.take("0-1", committed(11)).take("1-2", without_survivors).take("1-2", later);
    return all.take("1-2", points_receipt(3, 4, {}, told)).only_fault();
  };
  CHECK(replaced(6).empty());
  CHECK_THAT(replaced(1), ContainsSubstring("is told commit 1"));
}

TEST_CASE("where the order may be lost, a value that only lost processes had is no fault, and one of a survivor is",
          "[receipts]") {
  judged_receipts lost{.judge = receipt_judge{{.commit_every = 4, .order_survives = false}}};
  CHECK(lost.take("0-1", answer_receipt(0, 1, 0, 4, "a")).take("1-2", points_receipt(2, 4)).only_fault().empty());
  receipt committed = answer_receipt(0, 1, 11, 0, "");
  committed.kind = receipt_kind::committed;
  judged_receipts forgotten{.judge = receipt_judge{{.commit_every = 4, .order_survives = false}}};
  CHECK(forgotten.take("0-1", committed).take("1-2", points_receipt(2, 0)).only_fault().empty());
  judged_receipts known{.judge = receipt_judge{{.commit_every = 4, .order_survives = false}}};
  CHECK_THAT(known.take("0-1", committed).take("0-1", points_receipt(2, 0)).only_fault(),
             ContainsSubstring("is told no commit"));
  judged_receipts kept{.judge = receipt_judge{{.commit_every = 4, .order_survives = false}}};
  CHECK_THAT(kept.take("0-1", answer_receipt(0, 1, 0, 4, "a")).take("0-1", points_receipt(2, 4)).only_fault(),
             ContainsSubstring("is not told in epoch 2"));
}

} // namespace troupe::tests
