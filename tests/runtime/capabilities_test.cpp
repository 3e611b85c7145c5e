// A world says what it can do, and refuses the rest with that reason, whoever asks and however.
#include "support/runtimes.hpp"
#include "support/settings_sources.hpp"

#include <troupe/actors.hpp>
#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/runtime/mesh.hpp>

#include <caf/scoped_actor.hpp>

#include <catch2/catch_test_macros.hpp>

namespace troupe::tests {

namespace {

operation fp8_all_reduce(world& where, rank self) {
  return all_reduce{.send = where.allocate(self, 64),
                    .recv = where.allocate(self, 64),
                    .count = 64,
                    .type = dtype::f8e4m3,
                    .op = reduction::sum};
}

std::vector<operation> of_all(world& where) {
  std::vector<operation> parts;
  for (const rank self : where.local_ranks()) parts.push_back(fp8_all_reduce(where, self));
  return parts;
}

void check_refusal(const error& seen) {
  INFO(to_string(seen));
  CHECK(seen.code == errc::unsupported);
  CHECK(seen.effect == effect::rejected);
  CHECK(says(seen.text, "all_reduce of f8e4m3, sum: the mock is configured without fp8_reductions"));
}

} // namespace

TEST_CASE("a world refuses what its devices cannot do, by world, by rank and in a group, and goes on", "[runtime]") {
  configuration settings = mock_settings(2);
  settings.mock.without = {feature::fp8_reductions};
  runtime rt{settings};
  world two = rt.form_world();
  CHECK(two.capabilities().find(feature::fp8_reductions).available == availability::no);

  check_refusal(failure_of(two.ask(of_all(two))));
  check_refusal(failure_of(two.ask(rank{1}, fp8_all_reduce(two, rank{1}))));
  std::vector<operation> groups;
  for (operation& one : of_all(two)) groups.emplace_back(group{{std::move(one)}});
  const error grouped = failure_of(two.ask(std::move(groups)));
  CHECK(grouped.code == errc::unsupported);
  CHECK(says(grouped.text, "part 0 of the group: all_reduce of f8e4m3"));

  const auto values = ranked_values(two, 4);
  two.all_reduce(values, values, 4, dtype::f32, reduction::sum).get();
  CHECK(read_back(two, rank{0}, values[0]) == std::vector<float>(4, 3.0F));
}

TEST_CASE("the same request is done where nothing was taken away", "[runtime]") {
  runtime rt{mock_settings(2)};
  world two = rt.form_world();
  CHECK_FALSE(failure_of(two.ask(of_all(two))));
}

TEST_CASE("a world that was split off can do what its parent can, by its own number of ranks", "[runtime]") {
  configuration settings = mock_settings(3);
  settings.mock.without = {feature::fp8_reductions};
  runtime rt{settings};
  world three = rt.form_world();
  auto made = three.split({{.name = "pair", .members = {rank{0}, rank{1}}}, {.name = "alone", .members = {rank{2}}}});
  world pair = *made.at(0).handle;
  CHECK(pair.capabilities() == three.capabilities());
  check_refusal(failure_of(pair.ask(of_all(pair))));
  world alone = *made.at(1).handle;
  CHECK_FALSE(failure_of(alone.ask(of_all(alone)))); // nothing is combined
}

TEST_CASE("a world answers actors with its capabilities", "[runtime]") {
  configuration settings = mock_settings(2);
  settings.mock.without = {feature::collnet};
  runtime rt{settings};
  world two = rt.form_world();
  caf::scoped_actor self{rt.system()};
  capabilities heard;
  compat::request_unbounded(self.ptr(), actor_of(two), capabilities_query{})
      .receive([&](const capabilities& able) { heard = able; },
               [](const caf::error& why) { FAIL(to_string(from_caf(why))); });
  CHECK(heard == two.capabilities());
  CHECK(heard.find(feature::collnet).why == "the mock is configured without collnet");
}

TEST_CASE("nccl: a world of GPUs knows what it can do", "[runtime][gpu]") {
  runtime rt{gpu_settings(2)};
  world two = rt.form_world();
  const capabilities& able = two.capabilities();
  CHECK(able.backend == "nccl");
  for (const feature_finding& one : able.features) {
    INFO(to_string(one.what) << ": " << one.why);
    CHECK_FALSE(one.why.empty());
  }
  const bool fp8 = able.find(feature::fp8_reductions).available == availability::yes;
  const error refused = failure_of(two.ask(of_all(two)));
  CHECK((refused.code == errc::none) == fp8);
  CHECK((refused.code == errc::unsupported) == !fp8);
  CHECK(two.status().phase == world_phase::ready);
}

TEST_CASE("nccl: options under NCCL's names reach a communicator", "[runtime][gpu]") {
  configuration settings = gpu_settings(2);
  settings.nccl.config = {{"cgaClusterSize", "0"}, {"minCTAs", "1"}, {"maxCTAs", "2"}, {"commName", "troupe-test"}};
  {
    runtime rt{settings};
    world two = rt.form_world();
    const auto values = ranked_values(two, 1U << 20U);
    two.all_reduce(values, values, 1U << 20U, dtype::f32, reduction::sum).get();
    CHECK(read_back(two, rank{1}, values[1]) == std::vector<float>(1U << 20U, 3.0F));
  } // frees the GPUs for the next runtime

  // NCCL itself judges this one, so it has been heard.
  settings.nccl.config = {{"netName", "NoSuchNetwork"}};
  runtime other{settings};
  try {
    static_cast<void>(other.form_world());
    FAIL("a network that does not exist was taken");
  } catch (const exception& failure) {
    INFO(failure.what());
    CHECK(failure.why().call == "ncclCommInitRankConfig");
  }
}

} // namespace troupe::tests
