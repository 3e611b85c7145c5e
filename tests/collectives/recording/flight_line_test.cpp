#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/recording/flight_recorder.hpp>

#include <catch2/catch_all.hpp>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;

constexpr flight_place first_rank{.world = 3, .self = rank{0}, .world_size = 2, .where = device_id{0}};

time_point at(nanoseconds since) {
  return time_point{1h + since};
}

operation_sketch some_sketch(std::uint64_t position) {
  return {all_reduce{{}, {}, 16, dtype::f32, reduction::sum}, {.lane = lane::named("decode"), .position = position}};
}

flight_name named(std::uint64_t number) {
  return {ticket{number}, false, epoch{1}};
}

} // namespace

TEST_CASE("a request's life is read back with all its stations", "[collectives]") {
  flight_line line{first_rank, 8};
  line.asked(named(7), some_sketch(0), 42, 64, {"serve.cpp", 12}, at(1us));
  line.launched(named(7), 5, {at(2us), at(3us), at(4us), {9, 2}, 3});
  line.finished(named(7), at(5us), at(6us));
  line.answered(named(7), errc::none, at(7us));

  const auto all = line.read();
  REQUIRE(all.size() == 1);
  const flight& one = all.front();
  CHECK(one.name == named(7));
  REQUIRE(one.what);
  CHECK(one.what->what == "all_reduce of 16 f32, sum");
  CHECK(one.what->lane == lane::named("decode"));
  CHECK(one.what->position == 5); // as the order had it, which is known later
  CHECK(one.client == 42);
  CHECK(one.bytes == 64);
  CHECK(std::string{one.site.file} == "serve.cpp");
  CHECK(one.site.line == 12);
  CHECK(one.asked == at(1us));
  CHECK(one.matched == at(2us));
  CHECK(one.launch_began == at(3us));
  CHECK(one.launched == at(4us));
  CHECK(one.started == at(5us));
  CHECK(one.finished == at(6us));
  CHECK(one.replied == at(7us));
  CHECK(one.launch == 9);
  CHECK(one.fused == 3);
  CHECK(one.result == errc::none);
}

TEST_CASE("a request that is not finished is recorded as far as it has come", "[collectives]") {
  flight_line line{first_rank, 8};
  line.asked(named(1), some_sketch(0), 0, 64, {}, at(1us));
  line.asked(named(2), some_sketch(1), 0, 64, {}, at(2us));
  line.launched(named(1), 0, {at(2us), at(3us), at(4us), {1, 1}, 1});
  line.answered(named(2), errc::deadline_exceeded, at(9us));

  const auto all = line.read();
  REQUIRE(all.size() == 2);
  CHECK(all[0].launched == at(4us));
  CHECK_FALSE(all[0].finished);
  CHECK_FALSE(all[1].matched);
  CHECK(all[1].result == errc::deadline_exceeded);
  CHECK(all[1].replied == at(9us));
}

TEST_CASE("a name in two epochs, or of a rank and of the world, is two requests", "[collectives]") {
  flight_line line{first_rank, 8};
  for (const flight_name& one :
       {named(1), flight_name{ticket{1}, true, epoch{1}}, flight_name{ticket{1}, false, epoch{2}}})
    line.asked(one, some_sketch(0), 0, 64, {}, at(1us));
  CHECK(line.read().size() == 3);
}

TEST_CASE("a line keeps the last, and counts all", "[collectives]") {
  flight_line line{first_rank, 8};
  for (std::uint64_t i = 0; i < 20; ++i) line.asked(named(i), some_sketch(i), 0, 4, {}, at(i * 1us));
  const auto all = line.read();
  REQUIRE(all.size() == 8);
  CHECK(all.front().name == named(12));
  CHECK(all.back().name == named(19));
  CHECK(line.asked_in_all() == 20);

  flight_line counts_only{first_rank, 0};
  counts_only.asked(named(1), some_sketch(0), 0, 4, {}, at(1us));
  CHECK(counts_only.read().empty());
  CHECK_FALSE(counts_only.records());
}

TEST_CASE("entries that are read while another thread writes are complete", "[collectives]") {
  ring_log<4> log{1024};
  std::atomic<bool> stop{false};
  std::thread writer{[&] {
    for (std::uint64_t i = 1; !stop.load(); ++i) log.write({i, 2 * i, 3 * i, ~i});
  }};
  while (log.written() < 4096) std::this_thread::yield();
  std::size_t seen = 0, torn = 0;
  for (int round = 0; round < 500; ++round)
    for (const auto& one : log.read()) {
      ++seen;
      if (one[1] != 2 * one[0] || one[2] != 3 * one[0] || one[3] != ~one[0]) ++torn;
    }
  stop.store(true);
  writer.join();
  CHECK(seen > 0);
  CHECK(torn == 0);
  CHECK(log.read().size() == 1024);
}

TEST_CASE("several threads write to one log, each entry in a place of its own", "[collectives]") {
  ring_log<2> log{4096};
  std::vector<std::thread> writers;
  for (std::uint64_t w = 0; w < 4; ++w)
    writers.emplace_back([&, w] {
      for (std::uint64_t i = 0; i < 1000; ++i) log.write({w, i});
    });
  for (auto& one : writers) one.join();
  std::vector<std::uint64_t> next(4);
  for (const auto& one : log.read()) CHECK(one[1] == next[static_cast<std::size_t>(one[0])]++);
  CHECK(next == std::vector<std::uint64_t>(4, 1000));
}

TEST_CASE("a rank has one line in all its epochs, and few that have ended are kept", "[collectives]") {
  flight_recorder recorder{4};
  const auto mine = recorder.line_of(first_rank);
  CHECK(recorder.line_of(first_rank) == mine);
  for (std::uint64_t world = 100; world < 200; ++world)
    static_cast<void>(recorder.line_of({.world = world, .self = rank{0}, .world_size = 1, .where = device_id{0}}));
  const auto kept = recorder.lines();
  CHECK(kept.size() <= 34);
  CHECK(kept.front() == mine); // in use
  CHECK(kept.back()->who().world == 199);
}

TEST_CASE("latencies are counted in the bucket that holds them", "[collectives]") {
  CHECK(latency_bucket_of(0ns) == 0);
  CHECK(latency_bucket_of(1us) == 0);
  CHECK(latency_bucket_of(1001ns) == 1);
  CHECK(latency_bucket_of(2us) == 1);
  CHECK(latency_bucket_of(2001ns) == 2);
  CHECK(latency_bucket_of(1h) == latency_buckets - 1);
  for (std::size_t i = 1; i + 1 < latency_buckets; ++i) {
    CHECK(latency_bucket_of(latency_bound(i)) == i);
    CHECK(latency_bucket_of(latency_bound(i) + 1ns) == i + 1);
  }
}

TEST_CASE("a tally tells operations, sizes and errors apart", "[collectives]") {
  request_tally tally;
  const operation small = all_reduce{{}, {}, 2, dtype::f32, reduction::sum};
  tally.count_launch(2);
  tally.count_success(small.index(), payload_of(small), 3us, 20us);
  tally.count_success(small.index(), 1 << 20, 5us, 900us);
  tally.count_failure(errc::deadline_exceeded);

  const tally_reading seen = tally.read();
  const tally_cell& first = seen.cells[small.index()][0];
  CHECK(first.requests == 1);
  CHECK(first.bytes == 8);
  CHECK(first.latency == 20us);
  CHECK(first.queueing == 3us);
  CHECK(first.within[latency_bucket_of(20us)] == 1);
  CHECK(seen.cells[small.index()][size_class_of(1 << 20)].requests == 1);
  CHECK(seen.failed[static_cast<std::size_t>(errc::deadline_exceeded)] == 1);
  CHECK(seen.launches == 1);
  CHECK(seen.launched == 2);
}

TEST_CASE("a request is as large as what it counts", "[collectives]") {
  CHECK(payload_of(barrier{}) == 0);
  CHECK(payload_of(all_to_all{{}, {}, 10, dtype::f64}) == 80);
  CHECK(payload_of(all_gather_v{{}, {}, {{1, 2, 3}, {}}, dtype::i32}) == 24);
  CHECK(payload_of(group{
            {all_reduce{{}, {}, 1, dtype::f32, reduction::sum}, broadcast{{}, {}, 3, dtype::f16, rank{0}}}}) == 10);
}

TEST_CASE("sizes fall into the class whose bound they do not exceed", "[collectives]") {
  CHECK(size_class_of(0) == 0);
  CHECK(size_class_of(256) == 0);
  CHECK(size_class_of(257) == 1);
  CHECK(size_class_of(std::size_t{1} << 40U) == size_class_count - 1);
}

} // namespace troupe::tests
