/// Requests of another CAF node: a world's actor is published by CAF's I/O, and a second actor system uses it.
#include "support/runtimes.hpp"

#include <troupe/actors.hpp>
#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/processes/controller.hpp>
#include <troupe/runtime/interop/host_system.hpp>

#include <caf/io/middleman.hpp>
#include <caf/scoped_actor.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::tests::remote_nodes_test {

namespace {

using Catch::Matchers::ContainsSubstring;

constexpr std::size_t count = 100;

/// An actor system with CAF's I/O.
struct node {
  node() {
#if !TROUPE_CAF_0_17
    caf::io::middleman::init_global_meta_objects();
#endif
    prepare_host(settings, mock_settings(2));
    compat::set_worker_count(settings, 1);
    settings.load<caf::io::middleman>();
    system.emplace(settings);
  }

  caf::actor_system_config settings;
  std::optional<caf::actor_system> system;
};

// [published_world]
/// Lets other CAF nodes of this machine use a world, and returns the port. \p host has CAF's module io loaded, and was
/// prepared by troupe::prepare_host().
std::uint16_t publish(caf::actor_system& host, const troupe::world& where) {
  return host.middleman().publish(troupe::actor_of(where), 0, "127.0.0.1").value();
}
// [published_world]

// [remote_asker]
/// In another node: sums what two ranks have exported as "values". \p world: from remote_actor<troupe::world_handle>().
void sum_values(caf::scoped_actor& self, const troupe::world_handle& world) {
  const auto fail = [](const caf::error& why) { throw troupe::exception{troupe::from_caf(why)}; };
  std::vector<troupe::operation> parts;
  for (int r = 0; r < 2; ++r)
    troupe::request_unbounded(self.ptr(), world, troupe::find_memory_request{troupe::rank{r}, "values"})
        .receive(
            [&](const troupe::remote_buffer& found) {
              const troupe::buffer values = found.as_buffer();
              parts.emplace_back(troupe::all_reduce{values, values, count, troupe::dtype::f32});
            },
            fail);
  troupe::request_unbounded(self.ptr(), world, troupe::remote_request{std::move(parts)})
      .receive([](const troupe::completion&) {}, fail);
}
// [remote_asker]

/// The world's actor as the other node sees it.
struct asker {
  asker(node& serving, const world& where) : self{*here.system} {
    const auto port = publish(*serving.system, where);
    const auto found = here.system->middleman().remote_actor<world_handle>("127.0.0.1", port);
    REQUIRE(found);
    to = *found;
  }
  ~asker() { to = nullptr; }

  template <class Reply, class Request>
  std::variant<Reply, error> ask(Request what) {
    std::variant<Reply, error> got;
    compat::request_unbounded(self.ptr(), to, std::move(what))
        .receive([&](Reply& reply) { got = std::move(reply); }, [&](caf::error& why) { got = from_caf(why); });
    return got;
  }
  error failure(remote_request what) {
    const auto got = ask<completion>(std::move(what));
    const error* const why = std::get_if<error>(&got);
    return why != nullptr ? *why : error{};
  }
  remote_buffer find(int at, const std::string& name) {
    return std::get<remote_buffer>(ask<remote_buffer>(find_memory_request{rank{at}, name}));
  }

  node here;
  caf::scoped_actor self;
  world_handle to;
};

std::vector<operation> sum_of(asker& by) {
  std::vector<operation> parts;
  for (int r = 0; r < 2; ++r) {
    const buffer memory = by.find(r, "values").as_buffer();
    parts.emplace_back(all_reduce{memory, memory, count, dtype::f32, reduction::sum});
  }
  return parts;
}

/// What a node may do, whichever processes the ranks live in. \p read returns the first value of rank 0.
template <class Read>
void require_served(asker& by, Read read) {
  SECTION("requests on handles, and replies") {
    const auto reply = by.ask<completion>(remote_request{sum_of(by)});
    REQUIRE(std::holds_alternative<completion>(reply));
    CHECK(std::get<completion>(reply).epoch == epoch{1});
    CHECK(std::get<completion>(reply).times.done > std::get<completion>(reply).times.queued);
    CHECK(read() == 3.F);
    sum_values(by.self, by.to);
    CHECK(read() == 6.F);
  }
  SECTION("functions by name") {
    const auto function = std::make_shared<const rank_function>("double");
    std::vector<operation> parts;
    for (int r = 0; r < 2; ++r) parts.emplace_back(call{function, {by.find(r, "values").as_buffer()}});
    const error failure = by.failure(remote_request{parts});
    CHECK_THAT(to_string(failure), ContainsSubstring("none"));
    CHECK(read() == 2.F);
    for (auto& one : parts) std::get<call>(one).function = std::make_shared<const rank_function>("missing");
    const error why = by.failure(remote_request{parts});
    CHECK(why.code == errc::invalid_argument);
    CHECK_THAT(why.text, ContainsSubstring("no function called 'missing'"));
  }
  SECTION("errors, with the rank, and what follows works") {
    auto parts = sum_of(by);
    std::get<all_reduce>(parts[1]).send = remote_buffer{rank{1}, 1, 1, 0, count * sizeof(float)}.as_buffer();
    const error why = by.failure(remote_request{std::move(parts)});
    CHECK(why.code == errc::stale_buffer);
    CHECK(why.effect == effect::rejected);
    CHECK(why.rank == rank{1});
    CHECK(by.failure(remote_request{sum_of(by), {.epoch = epoch{7}}}).code == errc::stale_epoch);
    CHECK(by.failure(remote_request{}).code == errc::invalid_argument);
    CHECK_THAT(by.failure(remote_request::of_bytes("\x07 nonsense")).text,
               ContainsSubstring("another version of troupe has written it"));
    const auto missing = by.ask<remote_buffer>(find_memory_request{rank{0}, "nothing"});
    REQUIRE(std::holds_alternative<error>(missing));
    CHECK(std::get<error>(missing).code == errc::missing);
    CHECK(by.failure(remote_request{sum_of(by)}).code == errc::none);
  }
  SECTION("the world's state") {
    const auto now = std::get<world_event>(by.ask<world_event>(status_query{}));
    CHECK(now.phase == world_phase::ready);
    CHECK(now.epoch == epoch{1});
    CHECK(now.world_size == 2);
    CHECK_FALSE(now.reason);
    CHECK(std::get<world_event>(by.ask<world_event>(ready_query{})).epoch == epoch{1});
  }
}

void double_all(const rank_call& with) {
  auto* const values = reinterpret_cast<float*>(with.memory[0].data());
  for (std::size_t i = 0; i < count; ++i) values[i] *= 2;
}

buffer serve_node(world& where, rank self) {
  buffer memory = where.allocate_pinned(count * sizeof(float));
  for (float& one : memory.host_span<float>()) one = static_cast<float>(self.value() + 1);
  static_cast<void>(where.export_memory(self, memory, "values"));
  where.register_function("double", double_all);
  return memory;
}

} // namespace

TEST_CASE("another CAF node asks a world of one process", "[runtime][interop][nodes]") {
  node serving;
  runtime rt{*serving.system, mock_settings(2)};
  world where = rt.form_world();
  const buffer first = serve_node(where, rank{0});
  serve_node(where, rank{1});
  asker by{serving, where};
  require_served(by, [&] { return first.host_span<float>()[0]; });
}

TEST_CASE("another CAF node asks a world whose ranks live in several processes", "[runtime][interop][nodes]") {
  node serving;
  controller_options options{.terms = {.world_size = 2}};
  options.terms.token = "a token of the tests, long enough";
  controller control{std::move(options)};
  const auto settings_of = [&](int place) {
    configuration made = mock_settings(1);
    made.control.address = control.address();
    made.control.assignment = {
        .token = "a token of the tests, long enough", .name = std::to_string(place), .place = place};
    return made;
  };
  std::promise<void> over;
  auto peer = std::async(std::launch::async, [&, end = over.get_future()] {
    runtime rt{settings_of(1)};
    world where = rt.form_world();
    const buffer memory = serve_node(where, rank{1});
    static_cast<void>(where.export_memory(rank{1}, memory, "ready"));
    static_cast<void>(end.wait_for(2min));
    where.stop();
  });
  {
    runtime rt{*serving.system, settings_of(0)};
    world where = rt.form_world();
    const buffer first = serve_node(where, rank{0});
    const std::shared_ptr<void> ends{nullptr, [&](void*) { over.set_value(); }}; // also if a check fails
    asker by{serving, where};
    const auto is_ready = [&] {
      return std::holds_alternative<remote_buffer>(by.ask<remote_buffer>(find_memory_request{rank{1}, "ready"}));
    };
    for (const auto until = std::chrono::steady_clock::now() + 1min;
         !is_ready() && std::chrono::steady_clock::now() < until;)
      std::this_thread::sleep_for(1ms);
    REQUIRE(is_ready());
    require_served(by, [&] { return first.host_span<float>()[0]; });
  }
  peer.get();
}

TEST_CASE("a request that another node could not read is refused where it is made", "[runtime][interop][nodes]") {
  runtime rt{mock_settings(1)};
  const buffer own = rt.form_world().allocate(rank{0}, count * sizeof(float));
  CHECK_THROWS_AS(remote_request({all_reduce{own, own, count, dtype::f32, reduction::sum}}), exception);
  const auto unnamed = std::make_shared<captured_plan>(capture_function{}, plan_options{});
  CHECK_THROWS_AS(remote_request({replay{unnamed}}), exception);
  const auto named = std::make_shared<captured_plan>(std::string{"steps"});
  const world_request again = remote_request({replay{named}}, {.deadline = 3s}).what();
  REQUIRE(again.parts.size() == 1);
  CHECK(std::get<replay>(again.parts[0]).of->options().name == "steps");
  CHECK(again.deadline == 3s);
}

TEST_CASE("messages between nodes are read as they were, and other bytes are refused", "[runtime][interop][nodes]") {
  error why{.code = errc::mismatch, .text = "a text", .rank = rank{3}, .ticket = ticket{9}, .epoch = epoch{2}};
  error got;
  REQUIRE(decode_message(encode_message(why), got));
  CHECK(got.code == why.code);
  CHECK(got.text == why.text);
  CHECK(got.rank == why.rank);
  CHECK(got.ticket == why.ticket);
  CHECK(got.epoch == why.epoch);
  CHECK(decode_message(encode_message(error{}), got));
  CHECK_FALSE(got);
  const remote_buffer handle{rank{2}, 77, 5, 128, 4096, true};
  remote_buffer same;
  REQUIRE(decode_message(encode_message(handle), same));
  CHECK(same == handle);
  CHECK_FALSE(decode_message("2:77", same));
  world_event sent, event;
  sent.phase = world_phase::rebuilding;
  sent.epoch = epoch{4};
  sent.reason = why;
  REQUIRE(decode_message(encode_message(sent), event));
  CHECK(event.phase == world_phase::rebuilding);
  CHECK(event.reason.text == why.text);
  completion one;
  for (const std::string bytes : {"", "\xff", "\x01\x01"}) {
    CHECK_FALSE(decode_message(bytes, one));
    CHECK_FALSE(decode_message(bytes, event));
  }
}

TEST_CASE("another node reads the resume points of a world that has shrunk, whose operations name earlier ranks",
          "[runtime][interop][nodes][CUT-1]") {
  resume_point point{.complete = 120, .commit = 12, .incomplete = 2};
  point.later.push_back({.position = 120, .succeeded = {rank{0}, rank{7}}, .unknown = {rank{6}}});
  point.later.push_back({.position = 121, .succeeded = {}, .unknown = {rank{7}}});
  world_event sent, event;
  sent.phase = world_phase::ready;
  sent.epoch = epoch{2};
  sent.world_size = 7; // there were eight ranks before
  sent.resume = std::make_shared<const resume_points>(
      resume_points{.lanes = {point}, .counted_from = epoch{2}, .has_survivors = false});
  REQUIRE(decode_message(encode_message(sent), event));
  CHECK(event.world_size == 7);
  REQUIRE(event.resume);
  CHECK(event.resume->counted_from == epoch{2});
  CHECK_FALSE(event.resume->has_survivors);
  REQUIRE(event.resume->lanes.size() == 1);
  const resume_point& got = event.resume->lanes.front();
  CHECK(got.complete == 120);
  CHECK(got.commit == 12);
  CHECK(got.incomplete == 2);
  REQUIRE(got.later.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(got.later[i].position == point.later[i].position);
    CHECK(got.later[i].succeeded == point.later[i].succeeded);
    CHECK(got.later[i].unknown == point.later[i].unknown);
  }
}

} // namespace troupe::tests::remote_nodes_test
