/// A test of a client, in virtual time: a rank that hangs is replaced, which takes no time.

#include <troupe/testing/memory.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <chrono>
#include <cstdio>

int main() {
  using namespace std::chrono_literals;
  troupe::testing::virtual_world world{2, {.recovery = {.policy = troupe::recovery_policy::keep_size}}};
  const auto values = troupe::testing::make_ranked<float>(world, 16);
  world.script().on(troupe::rank{1}).operation(0).hang();
  const auto lost = world.ask(troupe::testing::sums_of(values));
  const bool back = world.run_until_ready(troupe::epoch{2}, 1s);
  const bool told = lost.is_ready() && troupe::failure_of(lost.result()) != nullptr;
  std::printf("in virtual time: the hang was %s, and the world %s\n", told ? "told" : "NOT TOLD",
              back ? "came back" : "DID NOT COME BACK");
  return back && told ? 0 : 1;
}
