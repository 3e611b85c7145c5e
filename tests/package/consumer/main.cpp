/// Sums over the ranks of a mock world, twice: asked from this thread, and by an actor of our own.

#include "summing_actor.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main() try {
  register_summing_messages(); // before the runtime, which starts the actor system

  troupe::configuration settings;
  settings.backend = troupe::backend_choice::mock; // automatic takes GPUs where there are some
  troupe::runtime runtime{settings};
  troupe::world world = runtime.form_world();

  // Every rank contributes 1024 floats with the value rank + 1.
  constexpr std::size_t count = 1024;
  const troupe::per_rank<troupe::buffer> values = world.allocate_all(count * sizeof(float));
  for (const troupe::rank self : world.local_ranks())
    world.write(self, std::vector<float>(count, static_cast<float>(self.value() + 1)), values[self]).get();
  const auto all_are = [&](int expected) {
    return std::ranges::all_of(world.local_ranks(), [&](troupe::rank self) {
      return world.read<float>(self, values[self]).get() == std::vector<float>(count, static_cast<float>(expected));
    });
  };

  const int ranks = world.size();
  const int sum = ranks * (ranks + 1) / 2;
  world.all_reduce(values, values, count, troupe::dtype::f32, troupe::reduction::sum).get();
  const bool thread_right = all_are(sum);

  sum_with_actor(runtime.system(), world, values, count).get();
  const bool actor_right = all_are(sum * ranks);

  std::printf("%d ranks: asked by a thread %s, by an actor %s\n", ranks, thread_right ? "right" : "WRONG",
              actor_right ? "right" : "WRONG");
  return thread_right && actor_right ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const troupe::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return EXIT_FAILURE;
}
