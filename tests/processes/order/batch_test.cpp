// What processes tell each other about the order of requests: it comes back as it was, and what was not written by the
// other end is refused without harm.
#include "support/pipeline_rig.hpp"
#include "support/sample_operations.hpp"

#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/signature.hpp>
#include <troupe/collectives/order/codec/report_codec.hpp>
#include <troupe/processes/order/codec/decision_codec.hpp>
#include <troupe/processes/order/codec/request_codec.hpp>
#include <troupe/processes/order/order_server.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <random>
#include <set>

namespace troupe::tests::batch_test {

using Catch::Matchers::ContainsSubstring;

namespace {

constexpr epoch of{7};

operation_outline outlined(const operation& what) {
  wire_writer out;
  REQUIRE_FALSE(write_outline(out, what));
  const std::string bytes = out.take();
  wire_reader in{bytes};
  operation_outline made;
  CHECK(read_outline(in, made));
  CHECK(in.at_end());
  return made;
}

void check_the_same(const operation& one, const operation& other) {
  CHECK(describe(one) == describe(other));
  const auto left = signatures_of(one);
  const auto right = signatures_of(other);
  REQUIRE(left.size() == right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    CHECK(describe(left[i]) == describe(right[i]));
    CHECK(left[i].op == right[i].op);
    CHECK(left[i].tag == right[i].tag);
    CHECK(left[i].send_counts == right[i].send_counts);
    CHECK(left[i].recv_counts == right[i].recv_counts);
    CHECK(left[i].staged == right[i].staged);
  }
}

operation some_group() {
  group several;
  several.parts.emplace_back(all_to_all_v{.send = {},
                                          .recv = {},
                                          .send_parts = partition::packed({1, 300}),
                                          .recv_parts = partition::packed({1, 2}),
                                          .type = dtype::bf16});
  several.parts.emplace_back(recv{.memory = {}, .count = 9, .peer = rank{1}, .tag = 4});
  return several;
}

std::vector<rank_group> some_groups() {
  return {{"both", {rank{1}, rank{0}}}, {"last", {rank{1}}}};
}

/// One of everything that a rank of two may tell.
std::string all_requests() {
  using form = request_record::form;
  request_writer out;
  const lane named = lane::named("batch");
  CHECK_FALSE(out.ask(all_reduce{.send = {}, .recv = {}, .count = 1000}, {}, 0, {}, 30s));
  CHECK_FALSE(out.ask(all_reduce{.send = {}, .recv = {}, .count = 1000}, {}, 0, {}, 30s));
  CHECK_FALSE(out.ask(copy{}, named, 77, 0, 1h));
  CHECK_FALSE(out.ask(some_group(), named, 77, {}, 1h));
  out.add({.kind = form::cancel, .where = lane::named("batch 2"), .position = 3});
  out.add({.kind = form::withdraw,
           .client = 77,
           .why = {.code = errc::abandoned, .text = "it is gone", .call = "exit", .native_code = 3, .part = 2}});
  out.add({.kind = form::turn, .turn = {.name = "work"}});
  out.add({.kind = form::turn, .turn = {.name = "plan", .deadline = 1s, .capture_limit = 2s}});
  const operation sum = all_reduce{.send = {}, .recv = {}, .count = 1000};
  const operation several = some_group();
  out.add({.kind = form::capture_launch,
           .place = 1,
           .outline = outline_of_launch(std::array{&sum, &several}, false, std::array<std::uint64_t, 2>{~0ULL, 0})});
  out.add({.kind = form::capture_failure, .why = {.code = errc::cancelled, .text = "the function threw"}, .place = 1});
  out.add({.kind = form::capture_launch, .place = 1, .outline = outline_of_launch(std::array{&sum, &sum}, true)});
  out.add({.kind = form::capture_end, .place = 1});
  out.add({.kind = form::progress, .launched = operation_mark{"barrier", lane::named("batch"), 4}});
  out.add({.kind = form::turn, .turn = {.name = "split", .deadline = 1s, .split = some_groups()}});
  return out.take({.epoch = of, .number = 1});
}

/// One of everything that is decided for rank 0 of two.
std::string all_decisions() {
  decision_writer out{of};
  out.has_seen(5, full_batch_bytes);
  out.release(1, 0);
  out.release(9, {});
  using form = decision_record::form;
  out.add({.kind = form::turn, .number = 1});
  out.add({.kind = form::turn, .number = 2, .why = {.code = errc::deadline_exceeded, .text = "nobody came"}});
  out.add({.kind = form::capture, .number = 1, .agreed = 3});
  out.add({.kind = form::capture, .number = 1, .why = {.code = errc::mismatch, .text = "another operation"}});
  resume_points points{.lanes = std::vector<resume_point>(2)};
  points.lanes[0].complete = 7;
  points.lanes[1].where = lane::named("batch");
  points.lanes[1].commit = 3;
  points.lanes[1].later = {{.position = 9, .succeeded = {rank{1}}, .unknown = {rank{0}}}};
  out.add({.kind = form::turn,
           .world = 2,
           .number = 3,
           .opened = {opened_world{4, 1, std::make_shared<const resume_points>(points)},
                      opened_world{
                          5, 2, nullptr, {.of = epoch{3}, .lanes = {{.where = lane::named("batch"), .number = 4}}}}}});
  out.add({.kind = form::closed, .world = 4});
  out.add({.kind = form::ending, .why = {.code = errc::communicator_failed, .text = "a process is lost"}});
  auto report = std::make_shared<absence_report>();
  report->what = "barrier";
  report->lane = lane::named("batch");
  report->waited = 3ms;
  report->ranks = {{.rank = rank{0}, .participates = true, .asked = true},
                   {.rank = rank{1}, .participates = true, .last_asked = operation_mark{"barrier", {}, 6}}};
  const error why{.code = errc::deadline_exceeded, .text = "nobody came", .rank = rank{1}};
  out.refuse(2, why, report);
  out.refuse(3, why, report);
  out.refuse(4, why, nullptr);
  return out.take();
}

error keep(std::string_view batch) {
  order_server keeper;
  keeper.open(of, 2);
  request_writer peer; // else the capture would not have begun
  peer.add({.kind = request_record::form::turn, .turn = {.name = "plan", .deadline = 1s, .capture_limit = 2s}});
  CHECK_FALSE(keeper.receive(rank{1}, peer.take({.epoch = of, .number = 1}), time_point{}));
  error failure = keeper.receive(rank{0}, batch, time_point{});
  static_cast<void>(keeper.take_outgoing(rank{0}));
  return failure;
}

/// How many records were read, and how that ended.
std::pair<std::size_t, error> decide(std::string_view batch) {
  wire_reader in{batch};
  static_cast<void>(batch_header::read(in));
  decision_reader reader{2};
  decision_record one;
  std::size_t count = 0;
  while (reader.next(in, one)) ++count;
  return {count, in.failure("a batch")};
}

} // namespace

TEST_CASE("an operation's outline says all that ranks are compared by", "[collectives][wire]") {
  for (const sample_operation& sample : sample_operations())
    for (const std::size_t count : {0U, 1U, 300U}) {
      const sample_place at{.self = 1, .world_size = 4, .count = count};
      INFO(sample.name);
      const auto device = device::open(make_mock_driver({.device_count = 1}), device_id{0});
      const buffer host = allocate_pinned(device, sample_room(at) * sizeof(std::int32_t));
      const operation staged = sample.make(host, host, at);
      const auto made = outlined(staged);
      check_the_same(staged, made.what);
      CHECK(made.sketch == compact(staged));
      CHECK(reach_of(made.what) == reach_of(staged));
    }
  const operation grouped = some_group();
  check_the_same(grouped, outlined(grouped).what);
  CHECK(outlined(all_reduce{.send = {}, .recv = {}, .count = 3, .op = reduction::pre_mul_sum, .staged = true})
            .sketch.staged);
  CHECK(outlined(barrier{}).what.index() == operation{barrier{}}.index());
  const auto plan = std::make_shared<captured_plan>([](rank_capture&) {}, plan_options{});
  CHECK(number_of(std::get<replay>(outlined(replay{plan}).what)) == plan->number());
  CHECK(number_of(std::get<replay>(outlined(replay{}).what)) == 0);
  const auto device = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  const buffer memory = allocate_pinned(device, 12);
  CHECK(describe(outlined(copy{memory, memory}).sketch) == "copy of 12 bytes");
}

TEST_CASE("an outline of more than there may be is not written", "[collectives][wire]") {
  wire_writer out;
  out.u8(1);
  all_gather_v wide;
  wide.recv_parts.counts.resize(most_outline_parts + 1);
  CHECK(write_outline(out, wide).code == errc::invalid_argument);
  wide.recv_parts.counts.assign(most_outline_parts, 300);
  group long_one;
  for (int i = 0; i < 9; ++i) long_one.parts.emplace_back(wide);
  CHECK(write_outline(out, long_one).code == errc::invalid_argument);
  CHECK(out.size_bytes() == 1);
  CHECK_FALSE(write_outline(out, wide));
}

TEST_CASE("requests come back as they were told", "[collectives][wire]") {
  const std::string batch = all_requests();
  wire_reader in{batch};
  const batch_header header = batch_header::read(in);
  CHECK(header.epoch == of);
  CHECK(header.number == 1);
  request_reader reader;
  std::vector<request_record> all;
  for (request_record one; reader.next(in, one);) all.push_back(one);
  CHECK_FALSE(in.failure("a batch"));
  REQUIRE(all.size() == 14);
  using form = request_record::form;
  CHECK(all[0].kind == form::ask);
  CHECK(describe(all[0].what->what) == "all_reduce of 1000 f32, sum");
  CHECK(all[0].deadline == 30s);
  CHECK_FALSE(all[0].position);
  CHECK(all[1].what == all[0].what);
  CHECK(all[2].where == lane::named("batch"));
  CHECK(all[2].client == 77);
  CHECK(all[2].position == 0);
  CHECK(all[2].deadline == 1h);
  CHECK(all[3].client == 77);
  check_the_same(all[3].what->what, some_group());
  CHECK(all[4].kind == form::cancel);
  CHECK(all[4].where == lane::named("batch 2"));
  CHECK(all[4].position == 3);
  CHECK(all[5].kind == form::withdraw);
  CHECK(all[5].why.text == "it is gone");
  CHECK(all[5].why.call == "exit");
  CHECK(all[5].why.part == 2);
  CHECK(all[6].kind == form::turn);
  CHECK(all[6].turn.name == "work");
  CHECK(all[6].turn.split.empty());
  CHECK(all[6].turn.deadline == nanoseconds::max());
  CHECK(all[7].turn.name == "plan");
  CHECK(all[7].turn.deadline == 1s);
  CHECK(all[7].turn.capture_limit == 2s);
  CHECK(all[8].kind == form::capture_launch);
  CHECK(all[8].place == 1);
  REQUIRE(all[8].launch.size() == 2);
  CHECK(describe(all[8].launch[0]) == "all_reduce of 1000 f32, sum");
  check_the_same(all[8].launch[1], some_group());
  CHECK_FALSE(all[8].divisible);
  CHECK(all[8].places == std::vector<std::uint64_t>{~0ULL, 0});
  CHECK(all[9].kind == form::capture_failure);
  CHECK(all[9].why.text == "the function threw");
  CHECK(all[10].launch.size() == 2);
  CHECK(all[10].divisible);
  CHECK(all[10].places.empty());
  CHECK(all[11].kind == form::capture_end);
  CHECK(all[12].kind == form::progress);
  REQUIRE(all[12].launched);
  CHECK(describe(*all[12].launched) == "barrier (lane batch, request 4)");
  CHECK_FALSE(all[12].finished);
  CHECK(all[13].turn.capture_limit == 0s);
  REQUIRE(all[13].turn.split.size() == 2);
  CHECK(all[13].turn.split[0].name == "both");
  CHECK(all[13].turn.split[0].members == std::vector{rank{1}, rank{0}});
  CHECK(all[13].turn.split[1].name == "last");
}

TEST_CASE("each record says to which world it belongs, in few bytes", "[collectives][wire]") {
  request_writer out;
  const operation what = barrier{};
  CHECK_FALSE(out.ask(what, {}, 0, {}, 1s));
  const std::size_t before = out.size_bytes();
  out.select(0); // as it was
  CHECK(out.size_bytes() == before);
  out.select(3);
  CHECK_FALSE(out.ask(what, {}, 0, {}, 1s));
  CHECK(out.size_bytes() == before + 5); // which world, then the same request
  out.add({.kind = request_record::form::succeeded, .count = 12});
  out.add({.kind = request_record::form::close, .why = {.code = errc::stopping, .text = "its work is done"}});
  out.select(0);
  CHECK_FALSE(out.ask(what, {}, 0, {}, 1s));
  const std::string batch = out.take({.epoch = of, .number = 1});
  wire_reader in{batch};
  static_cast<void>(batch_header::read(in));
  request_reader reader;
  std::vector<request_record> all;
  for (request_record one; reader.next(in, one);) all.push_back(one);
  REQUIRE(all.size() == 5);
  std::vector<std::uint64_t> worlds;
  for (const request_record& one : all) worlds.push_back(one.world);
  CHECK(worlds == std::vector<std::uint64_t>{0, 3, 3, 3, 0});
  CHECK(all[2].kind == request_record::form::succeeded);
  CHECK(all[2].count == 12);
  CHECK(all[3].kind == request_record::form::close);
  CHECK(all[3].why.text == "its work is done");
  out.add({.kind = request_record::form::close, .why = {.code = errc::stopping, .text = "of the whole world"}});
  const std::string last = out.take({.epoch = of, .number = 2});
  wire_reader rest{last};
  static_cast<void>(batch_header::read(rest));
  request_record one;
  REQUIRE(reader.next(rest, one));
  CHECK(one.kind == request_record::form::close);
  CHECK(one.world == 0);
}

TEST_CASE("each record comes back with all its fields, after the same of others", "[collectives][wire]") {
  using form = request_record::form;
  request_writer out;
  std::size_t written = 0;
  const auto back = [&](const request_record& one) {
    out.add(one);
    const std::string batch = out.take({.epoch = of, .number = ++written});
    CHECK(out.empty());
    wire_reader in{batch};
    static_cast<void>(batch_header::read(in));
    static request_reader reader;
    static request_record made;
    REQUIRE(reader.next(in, made));
    CHECK(in.at_end());
    CHECK(made.kind == one.kind);
    return made;
  };
  const operation_mark first{"barrier", lane{}, 1}, second{"all_reduce", lane::named("batch"), 2};
  const auto progress = back({.kind = form::progress, .launched = first, .finished = second});
  CHECK(progress.launched == first);
  CHECK(progress.finished == second);
  CHECK_FALSE(back({.kind = form::progress}).launched);
  const auto limits = back({.kind = form::limits, .count = 3, .bytes = 500});
  CHECK(limits.count == 3);
  CHECK(limits.bytes == 500);
  const auto message = back({.kind = form::message, .to = process_address{-5}, .message = "text"});
  CHECK(message.to == process_address{-5});
  CHECK(message.message == "text");
  CHECK(back({.kind = form::message, .to = process_address{3}}).message.empty());
  CHECK(back({.kind = form::capture_end, .place = 300}).place == 300);
  const auto withdrawn = back({.kind = form::withdraw, .client = 900, .why = {.code = errc::abandoned}});
  CHECK(withdrawn.client == 900);
  CHECK(withdrawn.why.code == errc::abandoned);
  const told_commits known{.of = epoch{2}, .lanes = {{.where = lane{}, .seen = 4, .number = 3}}};
  const std::vector<rank_group> groups(5, rank_group{}); // as short as they can be
  const auto turn =
      back({.kind = form::turn, .turn = {.name = "n", .deadline = 2s, .split = groups, .told = {5, known}}});
  CHECK(turn.turn.split.size() == 5);
  REQUIRE(turn.turn.told.size() == 5);
  CHECK(turn.turn.told[4].of == epoch{2});
  CHECK(turn.turn.told[4].lanes.at(0).seen == 4);
  CHECK(turn.turn.told[4].lanes.at(0).number == 3);
  const auto empty = back({.kind = form::turn, .turn = {.name = "n", .told = {}}});
  CHECK(empty.turn.split.empty());
  CHECK(empty.turn.told.empty());
  CHECK_FALSE(back({.kind = form::turn, .turn = {.name = "n", .split = groups, .told = std::vector<told_commits>(5)}})
                  .turn.told.empty());
}

TEST_CASE("the facts and the objection of a request are its own", "[collectives][wire]") {
  request_writer out;
  const request_facts facts{5, 6, 7, 8};
  const error objection{.code = errc::missing, .text = "its memory is gone", .rank = rank{1}};
  CHECK_FALSE(out.ask(barrier{}, {}, 4, 9, 1s, facts, std::nullopt, &objection));
  CHECK_FALSE(out.ask(barrier{}, {}, 5, std::nullopt, 1s));
  CHECK_FALSE(out.ask(barrier{}, {}, 5, std::nullopt, 2s, {0, 0, 0, 1}));
  CHECK_FALSE(out.ask(copy{}, {}, 5, std::nullopt, 2s, {}, 300));
  CHECK(out.records() == 4);
  const std::string batch = out.take({.epoch = of, .number = 1});
  wire_reader in{batch};
  static_cast<void>(batch_header::read(in));
  request_reader reader;
  std::vector<request_record> all;
  for (request_record one; reader.next(in, one);) all.push_back(one);
  REQUIRE(all.size() == 4);
  CHECK(all[0].facts == facts);
  CHECK(all[0].position == 9);
  REQUIRE(all[0].objection);
  CHECK(all[0].objection->text == "its memory is gone");
  CHECK(all[0].objection->rank == rank{1});
  CHECK(all[1].facts == request_facts{});
  CHECK_FALSE(all[1].objection);
  CHECK_FALSE(all[1].position);
  CHECK(all[1].client == 5);
  CHECK(all[2].facts.places == 1);
  CHECK(all[2].deadline == 2s);
  CHECK(all[3].what->sketch.count == 300);
}

TEST_CASE("operations that cannot be launched in a capture, or cannot be divided, are refused",
          "[collectives][wire][plans]") {
  const auto refusal = [](const operation& what, bool divisible = false, std::span<const std::uint64_t> places = {}) {
    request_writer out;
    const operation* const parts[] = {&what};
    out.add({.kind = request_record::form::capture_launch,
             .place = 1,
             .outline = outline_of_launch(parts, divisible, places)});
    const std::string batch = out.take({.epoch = of, .number = 1});
    wire_reader in{batch};
    static_cast<void>(batch_header::read(in));
    request_reader reader;
    request_record one;
    static_cast<void>(reader.next(in, one));
    return in.failure("it").text;
  };
  const operation sum = all_reduce{.send = {}, .recv = {}, .count = 3};
  for (const operation& what : {operation{copy{}}, operation{replay{}}, operation{call{}}})
    CHECK_THAT(refusal(what), ContainsSubstring("an operation is in a capture that cannot be launched there"));
  CHECK(refusal(sum).empty());
  CHECK(refusal(sum, true).empty());
  CHECK(refusal(group{{sum}}).empty());
  CHECK_THAT(refusal(group{{sum, sum}}, true), ContainsSubstring("a launch cannot be divided"));
  const std::vector<std::uint64_t> two{1, 2};
  CHECK(refusal(group{{sum, sum}}, false, two).empty());
  for (const operation& what : {sum, operation{group{{sum, sum, sum}}}})
    CHECK_THAT(refusal(what, false, two), ContainsSubstring("another number of places than of collectives"));
  const std::vector<const operation*> many(most_outline_parts + 1, &sum);
  CHECK_THROWS_AS(outline_of_launch(many, false), exception);
  CHECK_FALSE(outline_of_launch(std::span{many}.first(most_outline_parts), false).empty());
}

TEST_CASE("a lane is known by the number that was given to it, and by no other", "[collectives][wire]") {
  const auto refusal = [](std::initializer_list<int> all) {
    wire_writer out;
    for (const int one : all) out.u8(static_cast<std::uint8_t>(one));
    wire_reader in{out.view()};
    request_reader reader;
    request_record one;
    while (reader.next(in, one)) continue;
    return in.failure("it").text;
  };
  // A name (1) with a number, its length and its bytes; a cancel (2) in a lane, and its position.
  CHECK(refusal({1, 5, 1, 'x', 2, 5, 0}).empty());
  CHECK(refusal({2, 0, 0}).empty());
  for (const int other : {1, 4, 6})
    CHECK_THAT(refusal({1, 5, 1, 'x', 2, other, 0}), ContainsSubstring("not been named"));
  CHECK_THAT(refusal({1, 5, 1, 'x', 1, 5, 1, 'y'}), ContainsSubstring("a lane is named twice"));
  CHECK_THAT(refusal({1, 5, 0}), ContainsSubstring("a lane has no name"));
  CHECK_THAT(refusal({1, 5, 2, 'x'}), ContainsSubstring("it ends within a text"));
  CHECK_THAT(refusal({1, 0x80, 0x80, 4, 1, 'x'}), ContainsSubstring("a number is too large"));
}

TEST_CASE("an error, a mark and a report come back with all their fields", "[collectives][wire]") {
  error why{.code = errc::mismatch,
            .effect = effect::unknown_outcome,
            .text = std::string(longest_wire_text_bytes + 5, 't'),
            .call = "call",
            .native_code = -7,
            .native_text = "native",
            .rank = rank{3},
            .part = 4};
  wire_writer out;
  write_error(out, why);
  wire_reader in{out.view()};
  const error read = read_error(in);
  CHECK(in.at_end());
  CHECK(read.code == errc::mismatch);
  CHECK(read.effect == effect::unknown_outcome);
  CHECK(read.text == std::string(longest_wire_text_bytes, 't'));
  CHECK(read.call == "call");
  CHECK(read.native_code == -7);
  CHECK(read.native_text == "native");
  CHECK(read.rank == rank{3});
  CHECK(read.part == 4);
  for (std::size_t size = 0; size < out.size_bytes(); ++size) {
    wire_reader cut{out.view().substr(0, size)};
    static_cast<void>(read_error(cut));
    CHECK_FALSE(cut.ok());
  }
  absence_report report;
  report.what = "barrier";
  report.lane = lane::named("batch");
  report.waited = 3ms;
  const operation_mark asked{"a", lane{}, 1}, launched{"b", lane::named("batch"), 2}, finished{"c", lane{}, 3};
  report.ranks = {{.rank = rank{0}, .participates = true, .last_asked = asked},
                  {.rank = rank{1}, .asked = true, .last_launched = launched, .last_finished = finished}};
  wire_writer reported;
  REQUIRE(write_report(reported, report));
  wire_reader again{reported.view()};
  const auto made = read_report(again, 2);
  REQUIRE(made);
  CHECK(again.at_end());
  CHECK(made->what == "barrier");
  CHECK(made->lane == lane::named("batch"));
  CHECK(made->waited == 3ms);
  REQUIRE(made->ranks.size() == 2);
  CHECK(made->ranks[0].participates);
  CHECK_FALSE(made->ranks[0].asked);
  CHECK(made->ranks[0].last_asked == asked);
  CHECK(made->ranks[1].rank == rank{1});
  CHECK(made->ranks[1].asked);
  CHECK_FALSE(made->ranks[1].participates);
  CHECK(made->ranks[1].last_launched == launched);
  CHECK(made->ranks[1].last_finished == finished);
  for (std::size_t size = 0; size < reported.size_bytes(); ++size) {
    wire_reader cut{reported.view().substr(0, size)};
    CHECK_FALSE(read_report(cut, 2));
  }
  wire_reader larger{reported.view()};
  CHECK_FALSE(read_report(larger, 1));
}

TEST_CASE("resume points and commits come back with all their fields", "[collectives][wire][resume]") {
  resume_points points{.counted_from = epoch{4}, .has_survivors = false};
  points.lanes = {{.where = lane::named("batch"),
                   .complete = 7,
                   .commit = 3,
                   .incomplete = 5,
                   .later = {{.position = 9, .succeeded = {rank{1}, rank{2}}, .unknown = {rank{0}}}}},
                  {.complete = 1}};
  wire_writer out;
  points_field(out, std::make_shared<const resume_points>(points), 3);
  wire_reader in{out.view()};
  std::shared_ptr<const resume_points> read;
  points_field(in, read, 3);
  REQUIRE(read);
  CHECK(in.at_end());
  CHECK(read->counted_from == epoch{4});
  CHECK_FALSE(read->has_survivors);
  REQUIRE(read->lanes.size() == 2);
  CHECK(read->lanes[0].where == lane::named("batch"));
  CHECK(read->lanes[0].complete == 7);
  CHECK(read->lanes[0].commit == 3);
  CHECK(read->lanes[0].incomplete == 5);
  REQUIRE(read->lanes[0].later.size() == 1);
  CHECK(read->lanes[0].later[0].position == 9);
  CHECK(read->lanes[0].later[0].succeeded == std::vector{rank{1}, rank{2}});
  CHECK(read->lanes[0].later[0].unknown == std::vector{rank{0}});
  CHECK_FALSE(read->lanes[1].where);
  CHECK_FALSE(read->lanes[1].commit);
  wire_reader smaller{out.view()};
  points_field(smaller, read, 2); // rank 2 does not exist
  CHECK_FALSE(smaller.ok());
  wire_writer none;
  points_field(none, nullptr, 3);
  wire_reader nothing{none.view()};
  points_field(nothing, read, 3);
  CHECK_FALSE(read);
  CHECK(nothing.at_end());
  wire_writer told;
  commits_field(told, {.of = epoch{4}, .has_survivors = false, .lanes = {{.where = lane::named("batch"), .seen = 2}}});
  told.cut(told.size_bytes() - 1);
  wire_reader cut{told.view()};
  told_commits commits;
  commits_field(cut, commits);
  CHECK_FALSE(cut.ok());
  CHECK(commits.lanes.empty());
  wire_writer unnamed;
  for (const int one : {4, 1, 1, 1, 0, 2, 0}) unnamed.u8(static_cast<std::uint8_t>(one)); // a lane without a name
  wire_reader bad{unnamed.view()};
  commits_field(bad, commits);
  CHECK_THAT(bad.failure("it").text, ContainsSubstring("a lane has no name"));
}

TEST_CASE("groups that exceed a limit are refused before they are sent", "[collectives][wire]") {
  const auto code_of = [](const std::vector<rank_group>& groups) { return check_groups_size(groups).code; };
  CHECK(code_of(some_groups()) == errc::none);
  CHECK(code_of({rank_group{std::string(longest_group_name_bytes, 'x'), {rank{0}}}}) == errc::none);
  CHECK(code_of({rank_group{std::string(longest_group_name_bytes + 1, 'x'), {rank{0}}}}) == errc::invalid_argument);
  CHECK(code_of(std::vector<rank_group>(most_split_groups, rank_group{"x", {rank{0}}})) == errc::none);
  CHECK(code_of(std::vector<rank_group>(most_split_groups + 1, rank_group{"x", {rank{0}}})) == errc::invalid_argument);
  CHECK(code_of({rank_group{"x", std::vector<rank>(longest_split_bytes, rank{0})}}) == errc::invalid_argument);
}

TEST_CASE("decisions come back as they were told, and one report for all whom it concerns", "[collectives][wire]") {
  const std::string batch = all_decisions();
  wire_reader in{batch};
  CHECK(batch_header::read(in).seen == 5);
  decision_reader reader{2};
  std::vector<decision_record> all;
  for (decision_record one; reader.next(in, one);) all.push_back(one);
  CHECK_FALSE(in.failure("a batch"));
  REQUIRE(all.size() == 12);
  CHECK(all[0].number == 1);
  CHECK(all[0].position == 0);
  CHECK(all[1].number == 9);
  CHECK_FALSE(all[1].position);
  CHECK(all[2].kind == decision_record::form::turn);
  CHECK(all[2].number == 1);
  CHECK_FALSE(all[2].why);
  CHECK(all[3].number == 2);
  CHECK(all[3].why.text == "nobody came");
  CHECK(all[4].kind == decision_record::form::capture);
  CHECK(all[4].agreed == 3);
  CHECK_FALSE(all[4].why);
  CHECK(all[5].why.code == errc::mismatch);
  CHECK(all[6].world == 2);
  REQUIRE(all[6].opened.size() == 2);
  CHECK(all[6].opened[0].number == 4);
  CHECK(all[6].opened[0].group == 1);
  REQUIRE(all[6].opened[0].resume);
  CHECK(describe(*all[6].opened[0].resume) == "requests to the world: 7 complete; lane batch: 0 complete, commit 3");
  CHECK(all[6].opened[0].resume->lanes.at(1).later.at(0).unknown == std::vector{rank{0}});
  CHECK_FALSE(all[6].opened[1].resume);
  CHECK(all[7].kind == decision_record::form::closed);
  CHECK(all[7].world == 4);
  CHECK(all[8].kind == decision_record::form::ending);
  CHECK(all[8].why.text == "a process is lost");
  CHECK(all[9].why.code == errc::deadline_exceeded);
  CHECK(all[9].why.rank == rank{1});
  REQUIRE(all[9].absence);
  CHECK(all[9].absence_is_new);
  CHECK(all[9].absence->missing() == std::vector{rank{1}});
  CHECK(all[9].absence->lane == lane::named("batch"));
  CHECK(all[9].absence->waited == 3ms);
  CHECK(all[9].absence->ranks[1].last_asked->position == 6);
  CHECK(all[10].absence == all[9].absence);
  CHECK_FALSE(all[10].absence_is_new);
  CHECK_FALSE(all[11].absence);
}

TEST_CASE("the usual request takes two bytes, and its release one", "[collectives][wire]") {
  request_writer asked;
  decision_writer decided{of};
  const operation what = all_reduce{.send = {}, .recv = {}, .count = 1024};
  for (int i = 0; i < 2; ++i) CHECK_FALSE(asked.ask(what, lane::named("batch"), 1'000'000, {}, 30s));
  const std::size_t before = asked.size_bytes();
  for (int i = 0; i < 100; ++i) CHECK_FALSE(asked.ask(what, lane::named("batch"), 1'000'000, {}, 30s));
  CHECK(asked.size_bytes() - before == 200);
  for (std::uint64_t i = 1; i <= 100; ++i) decided.release(i, {});
  const std::string batch = decided.take();
  CHECK(batch.size() <= 110);
  wire_reader in{batch};
  static_cast<void>(batch_header::read(in));
  decision_reader reader{2};
  decision_record one;
  for (std::uint64_t i = 1; i <= 100; ++i) {
    REQUIRE(reader.next(in, one));
    CHECK(one.number == i);
  }
  CHECK(decided.take().empty());
}

TEST_CASE("decisions that do not fit into one batch come in several, and a report that is too long is left out",
          "[collectives][wire]") {
  decision_writer out{of};
  auto report = std::make_shared<absence_report>();
  for (int r = 0; r < 4000; ++r)
    report->ranks.push_back({.rank = rank{r}, .last_asked = operation_mark{std::string(100, 'x'), {}, 0}});
  const error why{.code = errc::busy, .text = std::string(10'000, 'y')};
  std::uint64_t told = 0;
  for (; told < 1000; ++told) out.refuse(told + 1, why, report);
  decision_reader reader{4000};
  std::uint64_t read = 0;
  std::size_t batches = 0;
  for (std::string batch; !(batch = out.take()).empty(); ++batches) {
    CHECK(batch.size() < longest_batch_bytes);
    wire_reader in{batch};
    CHECK(batch_header::read(in).number == batches + 1);
    for (decision_record one; reader.next(in, one);) {
      CHECK(one.number == ++read);
      CHECK(one.why.text.size() == longest_wire_text_bytes);
      CHECK_FALSE(one.absence);
    }
    CHECK(in.ok());
  }
  CHECK(read == told);
  CHECK(batches > 1);
}

TEST_CASE("a batch that ends early is refused but where a record ends", "[collectives][wire]") {
  const std::string asked = all_requests();
  std::size_t whole = 0;
  for (std::size_t size = 0; size < asked.size(); ++size) {
    const std::string part = asked.substr(0, size);
    const error failure = keep(part);
    if (!failure) ++whole;
    if (failure) CHECK_THAT(failure.text, ContainsSubstring("a batch of rank 0 cannot be read: at byte"));
  }
  CHECK(whole == 16); // after the header, after each of two names, and after each record but the last
  CHECK_FALSE(keep(asked));
  const std::string decided = all_decisions();
  std::set<std::size_t> counts;
  std::size_t accepted = 0;
  for (std::size_t size = 0; size < decided.size(); ++size) {
    const auto [count, failure] = decide(decided.substr(0, size));
    if (failure) continue;
    counts.insert(count);
    ++accepted;
  }
  CHECK(accepted == 12);
  CHECK(counts.size() == 12);
}

TEST_CASE("a turn without a name, and one that is a capture and a split, are refused", "[collectives][wire]") {
  for (const turn_terms& asked :
       {turn_terms{}, turn_terms{.name = "both", .capture_limit = 1s, .split = some_groups()}}) {
    request_writer out;
    out.add({.kind = request_record::form::turn, .turn = asked});
    CHECK_THAT(keep(out.take({.epoch = of, .number = 1})).text,
               ContainsSubstring("a turn has no name") || ContainsSubstring("a turn is both a capture and a split"));
  }
}

TEST_CASE("records about a world that does not exist, or wrongly about the whole world, are refused",
          "[collectives][wire]") {
  request_writer out;
  out.add({.kind = request_record::form::succeeded, .count = 1});
  CHECK_THAT(keep(out.take({.epoch = of, .number = 1})).text, ContainsSubstring("of the whole world"));
  request_writer other;
  other.select(1);
  CHECK_FALSE(other.ask(barrier{}, {}, 0, {}, 1s));
  CHECK_THAT(keep(other.take({.epoch = of, .number = 1})).text, ContainsSubstring("world 1, which does not exist"));
  request_writer groups;
  groups.add({.kind = request_record::form::turn, .turn = {.name = "split", .split = {{"both", {rank{0}, rank{2}}}}}});
  CHECK(keep(groups.take({.epoch = of, .number = 1})).code == errc::internal);
}

TEST_CASE("bytes that nobody wrote do no harm", "[collectives][wire]") {
  std::mt19937 random{7};
  const auto draw = [&](std::size_t end) { return random() % end; };
  const std::string all[] = {all_requests(), all_decisions()};
  std::size_t refused = 0;
  constexpr std::size_t rounds = 5'000;
  for (std::size_t i = 0; i < rounds; ++i) {
    std::string bytes = all[i % 2];
    if (i % 8 < 2) { // all but the header
      bytes.resize(5);
      for (std::size_t n = draw(60); n > 0; --n) bytes.push_back(static_cast<char>(random()));
    }
    for (std::size_t n = draw(4); n > 0; --n) bytes[draw(bytes.size())] = static_cast<char>(random());
    if (draw(4) == 0) bytes.insert(draw(bytes.size()), bytes.substr(draw(bytes.size()), draw(20)));
    refused += (i % 2 == 0 ? keep(bytes) : decide(bytes).second) ? 1 : 0;
  }
  CHECK(refused > rounds / 4);
  CHECK(refused < rounds);
}

TEST_CASE("invalid records are refused", "[collectives][wire]") {
  const auto refused = [](auto write) {
    wire_writer out;
    batch_header{.epoch = of, .number = 1}.write(out);
    write(out);
    const std::string bytes = out.take();
    return keep(bytes).text;
  };
  const auto as_bytes = [](std::initializer_list<int> all) {
    return [all = std::vector<int>(all)](wire_writer& out) {
      for (const int one : all) out.u8(static_cast<std::uint8_t>(one));
    };
  };
  CHECK_THAT(refused(as_bytes({0x00, 5, 0, 0, 0})), ContainsSubstring("a lane has not been named"));
  CHECK_THAT(refused(as_bytes({0x18, 3})), ContainsSubstring("an operation has not been outlined"));
  CHECK_THAT(refused(as_bytes({0x18, 65})), ContainsSubstring("a number is too large"));
  CHECK_THAT(refused(as_bytes({0x07, 6})), ContainsSubstring("a number is too large"));
  CHECK_THAT(refused(as_bytes({0x0C})), ContainsSubstring("unknown flags"));
  CHECK_THAT(refused(as_bytes({0x01, 1, 0})), ContainsSubstring("a lane has no name"));
  CHECK_THAT(refused(as_bytes({0x01, 0, 1, 'x'})), ContainsSubstring("a lane is named twice"));
  CHECK_THAT(refused(as_bytes({0x58, 0, 17, 1, 17, 0})), ContainsSubstring("must be alone"));  // a group in a group
  CHECK_THAT(refused(as_bytes({0x58, 0, 0, 12})), ContainsSubstring("a number is too large")); // no such dtype
  CHECK_THAT(refused(as_bytes({0x03, 1, 0})), ContainsSubstring("an error has the code none"));
  CHECK_THAT(keep(std::string(longest_batch_bytes + 1, '\1')).text,
             ContainsSubstring("exceeds the size limit of a batch"));
  CHECK_THAT(keep(std::string{"\x01"}).text, ContainsSubstring("it ends within a number"));
  wire_writer second;
  batch_header{.epoch = of, .number = 2}.write(second);
  CHECK_THAT(keep(second.take()).text, ContainsSubstring("batches before it are missing"));
}

TEST_CASE("a report that is not of this world, or is missing, is refused", "[collectives][wire]") {
  const std::string batch = all_decisions();
  wire_reader in{batch};
  static_cast<void>(batch_header::read(in));
  decision_reader smaller{1};
  decision_record one;
  while (smaller.next(in, one)) {
  }
  CHECK_THAT(in.failure("it").text, ContainsSubstring("a number is too large"));
  decision_reader larger{3};
  wire_writer out;
  out.u8(1);
  out.varint(1);
  write_error(out, {.code = errc::busy});
  out.u8(2);
  const std::string lone = out.take();
  wire_reader again{lone};
  CHECK_FALSE(larger.next(again, one));
  CHECK_THAT(again.failure("it").text, ContainsSubstring("a report is missing"));
}

TEST_CASE("more operations than the table has slots come back each as itself", "[collectives][wire]") {
  constexpr std::size_t operations = 3 * outline_slots;
  request_writer out;
  const auto operation_of = [](std::size_t i) -> operation { return all_reduce{.send = {}, .recv = {}, .count = i}; };
  for (int round = 0; round < 2; ++round)
    for (std::size_t i = 0; i < operations; ++i) REQUIRE_FALSE(out.ask(operation_of(i), {}, 0, {}, 30s));
  const std::string batch = out.take({.epoch = of, .number = 1});
  wire_reader in{batch};
  static_cast<void>(batch_header::read(in));
  request_reader reader;
  request_record one;
  for (int round = 0; round < 2; ++round)
    for (std::size_t i = 0; i < operations; ++i) {
      REQUIRE(reader.next(in, one));
      REQUIRE(describe(one.what->what) == describe(operation_of(i)));
    }
}

TEST_CASE("a request without a position does not inherit one", "[collectives][wire]") {
  request_writer out;
  const operation what = all_reduce{.send = {}, .recv = {}, .count = 3};
  CHECK_FALSE(out.ask(what, {}, 1, 5, 30s));
  CHECK_FALSE(out.ask(what, {}, 1, {}, 30s));
  const std::string batch = out.take({.epoch = of, .number = 1});
  wire_reader in{batch};
  static_cast<void>(batch_header::read(in));
  request_reader reader;
  request_record one;
  REQUIRE(reader.next(in, one));
  CHECK(one.position == 5);
  REQUIRE(reader.next(in, one));
  CHECK_FALSE(one.position);
}

TEST_CASE("each of two reports reaches those whom it concerns", "[collectives][wire]") {
  decision_writer out{of};
  const auto report_on = [](const char* what) {
    auto made = std::make_shared<absence_report>();
    made->what = what;
    made->lane = lane::named("batch");
    made->ranks = {{.rank = rank{0}}, {.rank = rank{1}}};
    return made;
  };
  const auto first = report_on("barrier");
  const auto second = report_on("broadcast");
  std::uint64_t number = 0;
  for (const auto& report : {first, first, second, second}) out.refuse(++number, {.code = errc::busy}, report);
  const std::string batch = out.take();
  wire_reader in{batch};
  static_cast<void>(batch_header::read(in));
  decision_reader reader{2};
  decision_record one;
  for (const char* what : {"barrier", "barrier", "broadcast", "broadcast"}) {
    REQUIRE(reader.next(in, one));
    REQUIRE(one.absence);
    CHECK(one.absence->what == what);
  }
}

TEST_CASE("batches of decisions are counted, and name the batch of the controller that they complete",
          "[collectives][wire][hosts]") {
  decision_writer out{of};
  CHECK(out.batches() == 0);
  CHECK(out.take().empty());
  const auto header = [&] {
    const std::string batch = out.take();
    wire_reader in{batch};
    return batch_header::read(in);
  };
  out.has_seen(4, full_batch_bytes);
  CHECK(out.batches() == 1);
  const batch_header first = header();
  CHECK(first.epoch == of);
  CHECK(first.number == 1);
  CHECK(first.seen == 4);
  CHECK(first.controller_batch == 1); // its own number, if there is no other service
  CHECK(out.take().empty());
  CHECK(out.batches() == 1);
  const decision_record message{.kind = decision_record::form::message,
                                .from = process_address{1},
                                .message = std::string(full_batch_bytes, 'x')};
  for (int i = 0; i < 3; ++i) CHECK(out.add(message) == (i > 0));
  out.has_passed_on(9);
  CHECK(out.batches() == 4);
  CHECK(out.waiting_bytes() > 3 * full_batch_bytes);
  CHECK(out.waiting_bytes() < 3 * full_batch_bytes + 64);
  CHECK(header().controller_batch == 1);
  CHECK(out.waiting_bytes() < 2 * full_batch_bytes + 64);
  CHECK(header().controller_batch == 1);
  const batch_header last = header();
  CHECK(last.number == 4);
  CHECK(last.controller_batch == 9);
  CHECK(out.waiting_bytes() == 0);
  CHECK(out.take().empty());
  out.has_passed_on(10);
  CHECK(out.batches() == 5);
  CHECK(header().controller_batch == 10);
  out.release(1, 0);
  CHECK(out.batches() == 6);
  CHECK(header().controller_batch == 10);
}

TEST_CASE("a decision with marks that it cannot have is refused", "[collectives][wire]") {
  for (const int head : {0x02 | 0x08, 0x01 | 0x10, 0x01 | 0x20, 0x01 | 0x40, 0x80}) {
    wire_writer out;
    batch_header{.epoch = of, .number = 1}.write(out);
    out.u8(static_cast<std::uint8_t>(head));
    out.varint(1);
    CHECK_THAT(decide(out.take()).second.text, ContainsSubstring("unknown flags"));
  }
}

TEST_CASE("requests behind a lane that cannot exist are not refused with it", "[collectives][wire]") {
  // More names than a process may have come from another one: here the reader's process has them all.
  request_writer out;
  const operation what = all_reduce{.send = {}, .recv = {}, .count = 3};
  CHECK_FALSE(out.ask(what, {}, 1, {}, 30s));
  const std::string batch = out.take({.epoch = of, .number = 1});
  wire_reader in{batch};
  static_cast<void>(batch_header::read(in));
  request_reader reader;
  request_record one;
  one.why = {.code = errc::invalid_argument, .text = "of the record before"};
  REQUIRE(reader.next(in, one));
  CHECK_FALSE(one.why);
}

} // namespace troupe::tests::batch_test
