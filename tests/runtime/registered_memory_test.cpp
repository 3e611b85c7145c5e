// Memory that all ranks know of: given out at one place on each, used by requests, refused where the places differ.
#include "support/outcomes.hpp"

#include "support/runtimes.hpp"
#include <troupe/device/error.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <thread>

using namespace troupe;
using Catch::Matchers::ContainsSubstring;
using troupe::tests::error_of;
using troupe::tests::failure_of;
using troupe::tests::mock_settings;
using troupe::tests::read_back;

namespace {

std::vector<operation> sums(const std::vector<buffer>& send, const std::vector<buffer>& recv, std::size_t count) {
  std::vector<operation> parts;
  for (std::size_t i = 0; i < send.size(); ++i) parts.emplace_back(all_reduce{send[i], recv[i], count});
  return parts;
}

void fill(world& where, const std::vector<buffer>& to) {
  for (const rank self : where.local_ranks()) {
    const buffer host = where.allocate_pinned(to.front().size_bytes());
    std::ranges::fill(host.host_span<float>(), static_cast<float>(self.value() + 1));
    static_cast<void>(where.copy(self, host, to[static_cast<std::size_t>(self.value())]).get());
  }
}

} // namespace

TROUPE_WORLD_TEST(2, "requests on registered memory give the same results, in any count and place", "[runtime]") {
  runtime rt{settings};
  world where = rt.form_world();
  CHECK_THAT(where.registered_memory().why_ordinary, ContainsSubstring("register_memory()"));
  where.register_memory(8U << 20U);
  CHECK(where.registered_memory().size_bytes == 8U << 20U);
  CHECK(where.registered_memory().why_ordinary.empty());
  for (const std::size_t count : {1U, 3U, 1000U, 1U << 18U}) {
    CAPTURE(count);
    const auto send = where.allocate_all(count * sizeof(float));
    const auto recv = where.allocate_all(count * sizeof(float));
    fill(where, send);
    static_cast<void>(where.ask(sums(send, recv, count)).get());
    static_cast<void>(where.ask(sums(send, send, count)).get());
    for (const rank self : where.local_ranks())
      for (const auto* memory : {&send, &recv})
        CHECK(read_back(where, self, (*memory)[self]) == std::vector<float>(count, 3.0F));
  }
  // All is given back, the last request's a moment after its reply.
  while (where.registered_memory().free_bytes != 8U << 20U) std::this_thread::yield();
}

TEST_CASE("memory that cannot be had is told, and nothing has changed", "[runtime]") {
  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  CHECK(error_of([&] { where.register_memory(std::size_t{1} << 40U); }).code == errc::out_of_memory);
  CHECK(error_of([&] { where.register_memory(0); }).code == errc::invalid_argument);
  CHECK_NOTHROW(static_cast<void>(where.barrier().get()));
  where.register_memory(4096);
  const auto all = where.allocate_all(4096);
  const auto more = where.allocate_all(4096); // of the pools
  CHECK(where.registered_memory().free_bytes == 0);
  CHECK_FALSE(failure_of(where.ask(sums(all, more, 8))));
}
