// One rank's part of a request, as another process writes it: it comes back as it was, and the rank's process looks up
// what it names.
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/order/codec/part_codec.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::tests::part_codec_test {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

constexpr rank self{1};

/// The process of a rank, which has exported two ranges of memory.
struct process_scene {
  std::shared_ptr<device> gpu = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  std::shared_ptr<exported_memory> memory = std::make_shared<exported_memory>(7);
  buffer here = allocate_pinned(gpu, 64), there = allocate_pinned(gpu, 64);
  remote_buffer first = memory->add(self, here), second = memory->add(self, there);
  std::shared_ptr<plan_directory> plans = std::make_shared<plan_directory>();
  std::shared_ptr<function_directory> functions = std::make_shared<function_directory>();
  local_names names{.memory = memory, .plans = plans, .functions = functions};
};

/// Writes and reads a part.
template <class Operation>
Operation sent(const Operation& what) {
  wire_writer out;
  const error why = write_part(out, what, self);
  INFO(why.text);
  REQUIRE_FALSE(why);
  const std::string bytes = out.take();
  wire_reader in{bytes};
  auto made = read_part(in, self);
  REQUIRE(made);
  CHECK(in.at_end());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    wire_reader cut{std::string_view{bytes}.substr(0, size)};
    CHECK_FALSE(read_part(cut, self));
  }
  return std::get<Operation>(std::move(*made));
}

error refusal(const operation& what) {
  wire_writer out;
  error why = write_part(out, what, self);
  CHECK(why.code == errc::invalid_argument);
  CHECK(why.rank == self);
  return why;
}

} // namespace

TEST_CASE("the memory of a part is written as handles, and found by its process", "[collectives][peers][wire]") {
  process_scene at;
  const all_reduce what{.send = {at.first.as_buffer()},
                        .recv = {at.second.slice(8, 32).as_buffer()},
                        .count = 2,
                        .type = dtype::i32,
                        .op = reduction::pre_mul_sum,
                        .factor = {.value = {std::byte{5}, std::byte{6}}, .memory = at.second.as_buffer()}};
  const all_reduce read = sent(what);
  CHECK(remote_of(read.send.memory) == at.first);
  CHECK(remote_of(read.recv.memory) == at.second.slice(8, 32));
  CHECK(remote_of(read.factor.memory) == at.second);
  CHECK(read.factor.value == what.factor.value);
  operation found = read;
  REQUIRE_FALSE(resolve_part(found, at.names, self));
  const auto& done = std::get<all_reduce>(found);
  CHECK(done.send.memory.data() == at.here.data());
  CHECK(done.recv.memory.data() == at.there.data() + 8);
  CHECK(done.recv.memory.size_bytes() == 32);
  CHECK(done.factor.memory.data() == at.there.data());

  at.memory->remove(at.second);
  operation stale = read;
  const error why = resolve_part(stale, at.names, self);
  CHECK(why.code == errc::stale_buffer);
  CHECK(why.rank == self);
  operation nothing = read;
  const error none = resolve_part(nothing, {}, self);
  CHECK(none.code == errc::invalid_argument);
  CHECK(none.rank == self);
  CHECK(none.text == "this rank's process exports no memory");
}

TEST_CASE("an operation without a factor has none in its bytes", "[collectives][peers][wire]") {
  const process_scene at;
  all_reduce plain{.send = {at.first.as_buffer()}, .recv = {at.first.as_buffer()}, .count = 2, .type = dtype::i32};
  plain.factor.value[0] = std::byte{5}; // meaningless for a sum
  CHECK(sent(plain).factor.value[0] == std::byte{0});
  CHECK_FALSE(sent(all_reduce{.send = {}, .recv = {}, .count = 0}).send.memory);
}

TEST_CASE("displacements and the memory of groups and copies are written", "[collectives][peers][wire]") {
  process_scene at;
  all_to_all_v exchange{.send = {at.first.as_buffer()},
                        .recv = {at.second.as_buffer()},
                        .send_parts = {.counts = {1, 2}, .displacements = {0, 9}},
                        .recv_parts = {.counts = {2, 1}, .displacements = {3, 300}},
                        .type = dtype::i32};
  const troupe::copy moved{at.first.as_buffer(), at.second.as_buffer()};
  const group read = sent(group{{exchange, moved}});
  const auto& one = std::get<all_to_all_v>(read.parts.at(0));
  CHECK(one.send_parts.displacements == std::vector<std::size_t>{0, 9});
  CHECK(one.recv_parts.displacements == std::vector<std::size_t>{3, 300});
  operation found = read;
  REQUIRE_FALSE(resolve_part(found, at.names, self));
  const auto& done = std::get<troupe::copy>(std::get<group>(found).parts.at(1));
  CHECK(done.from.memory.data() == at.here.data());
  CHECK(done.to.memory.data() == at.there.data());
}

TEST_CASE("the plan of a part is found by its name", "[collectives][peers][wire][plans]") {
  process_scene at;
  const auto plan = std::make_shared<captured_plan>([](rank_capture&) {}, plan_options{.name = "decode"});
  operation found = sent(replay{.of = plan});
  CHECK(std::get<replay>(found).of->options().name == "decode");
  operation missing = found;
  const error why = resolve_part(missing, at.names, self);
  CHECK(why.code == errc::invalid_argument);
  CHECK(why.text == "this rank's process has captured no plan called 'decode'");
  CHECK(why.rank == self);
  CHECK_THAT(resolve_part(missing, {}, self).text, ContainsSubstring("captured no plan"));
  at.plans->add(plan);
  REQUIRE_FALSE(resolve_part(found, at.names, self));
  CHECK(std::get<replay>(found).of == plan);
  REQUIRE_FALSE(resolve_part(found, {}, self)); // it has been found
  CHECK(std::get<replay>(found).of == plan);
  CHECK_FALSE(sent(replay{}).of);
  operation none = replay{};
  CHECK_FALSE(resolve_part(none, at.names, self));
  const auto unnamed = std::make_shared<captured_plan>([](rank_capture&) {}, plan_options{});
  CHECK_THAT(refusal(replay{.of = unnamed}).text, StartsWith("the plan of rank 1 has no name"));
}

TEST_CASE("a name stands for the latest plan whose capture has not failed", "[collectives][peers][plans]") {
  plan_directory plans;
  const auto make = [] {
    return std::make_shared<captured_plan>([](rank_capture&) {}, plan_options{.name = "decode"});
  };
  const auto first = make(), second = make(), third = make();
  plans.add(first);
  plans.replace_by(first);
  plans.add(second);
  plans.add(third);
  CHECK(plans.find("decode") == third); // a replay asked for now comes behind its capture
  SECTION("all captures fail") {
    plans.remove(third);
    CHECK(plans.find("decode") == second);
    plans.remove(second);
    CHECK(plans.find("decode") == first);
    plans.remove(first);
    CHECK(plans.find("decode") == nullptr);
    plans.remove(first);
    plans.replace_by(first);
    CHECK(plans.find("decode") == nullptr);
  }
  SECTION("the one in the middle succeeds") {
    plans.replace_by(second);
    CHECK(plans.find("decode") == third);
    plans.remove(third);
    CHECK(plans.find("decode") == second);
    plans.remove(first); // it has lost the name
    CHECK(plans.find("decode") == second);
    plans.remove(second);
    CHECK(plans.find("decode") == nullptr);
  }
  SECTION("a replaced plan that is dropped later does not take the name of its successor") {
    plans.replace_by(third);
    plans.remove(second);
    plans.remove(first);
    CHECK(plans.find("decode") == third);
  }
}

TEST_CASE("the function of a part is found by its name, and its arguments by their handles",
          "[collectives][peers][wire]") {
  process_scene at;
  call what{.function = std::make_shared<const rank_function>("scale"),
            .arguments = {{at.first.as_buffer()}, {at.second.as_buffer()}},
            .values = {std::byte{1}, std::byte{0}, std::byte{255}}};
  const call read = sent(what);
  CHECK(read.function->name() == "scale");
  CHECK(read.function->is_placeholder());
  CHECK(read.values == what.values);
  REQUIRE(read.arguments.size() == 2);
  operation missing = read;
  const error why = resolve_part(missing, at.names, self);
  CHECK(why.code == errc::invalid_argument);
  CHECK(why.text == "this rank's process has registered no function called 'scale'");
  CHECK(why.rank == self);
  CHECK_THAT(resolve_part(missing, {.memory = at.memory}, self).text, ContainsSubstring("registered no function"));
  const auto known = at.functions->add("scale", [](const rank_call&) {});
  operation found = read;
  REQUIRE_FALSE(resolve_part(found, at.names, self));
  CHECK(std::get<call>(found).function == known);
  CHECK(std::get<call>(found).arguments[0].memory.data() == at.here.data());
  CHECK(std::get<call>(found).arguments[1].memory.data() == at.there.data());
  REQUIRE_FALSE(resolve_part(found, {}, self)); // all has been found
  CHECK(std::get<call>(found).function == known);
  CHECK_FALSE(sent(call{}).function);
  operation none = call{};
  CHECK_FALSE(resolve_part(none, at.names, self));
  // The first reason is told.
  at.memory->remove(at.first);
  operation both = read;
  CHECK(resolve_part(both, {.memory = at.memory}, self).code == errc::stale_buffer);
}

TEST_CASE("memory that another process cannot use is refused before it is sent, with the first reason",
          "[collectives][peers][wire]") {
  const process_scene at;
  const auto event = record_event(at.gpu, stream{at.gpu}.ref());
  const operand local{at.here}, remote{at.first.as_buffer()}, waits{at.first.as_buffer(), event};
  const auto sum = [](const operand& send, const operand& recv) {
    return all_reduce{.send = send, .recv = recv, .count = 2, .type = dtype::i32};
  };
  CHECK_THAT(refusal(sum(local, remote)).text, StartsWith("the send buffer of rank 1 is memory of this process"));
  CHECK_THAT(refusal(sum(remote, local)).text, StartsWith("the recv buffer of rank 1 is memory of this process"));
  CHECK_THAT(refusal(sum(waits, local)).text, StartsWith("the send buffer of rank 1 has a ready event"));
  CHECK_THAT(refusal(troupe::copy{local, remote}).text, StartsWith("the source buffer"));
  CHECK_THAT(refusal(troupe::copy{remote, local}).text, StartsWith("the destination buffer"));
  CHECK_THAT(refusal(troupe::send{.memory = local, .count = 2, .type = dtype::i32, .peer = rank{0}}).text,
             StartsWith("the memory buffer"));
  CHECK_THAT(refusal(call{.function = {}, .arguments = {remote, local}}).text, StartsWith("the argument buffer"));
  auto factor = sum(remote, remote);
  factor.op = reduction::pre_mul_sum;
  factor.factor.memory = at.here;
  CHECK_THAT(refusal(factor).text, StartsWith("the factor buffer"));
}

} // namespace troupe::tests::part_codec_test
