/// The smallest use of troupe: one world, and one all_reduce whose result is verified. Runs on GPUs if there are any,
/// otherwise on the mock.

#include <troupe/runtime/runtime.hpp>

#include <chrono>
#include <cstdio>
#include <vector>

int main() try {
  troupe::runtime runtime;
  troupe::world world = runtime.form_world();

  // Every rank contributes 1024 floats with the value rank + 1.
  constexpr std::size_t count = 1024;
  const troupe::per_rank<troupe::buffer> values = world.allocate_all(count * sizeof(float));
  for (const troupe::rank self : world.local_ranks())
    world.write(self, std::vector<float>(count, static_cast<float>(self.value() + 1)), values[self]).get();

  // One message requests the operation on all ranks. The single reply is sent when the last GPU has finished.
  const troupe::completion reply =
      world.all_reduce(values, values, count, troupe::dtype::f32, troupe::reduction::sum).get();

  const auto expected = static_cast<float>(world.size() * (world.size() + 1) / 2);
  bool right = true;
  for (const troupe::rank self : world.local_ranks())
    right = right && world.read<float>(self, values[self]).get() == std::vector<float>(count, expected);
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(reply.times.done - reply.times.queued);
  std::printf("%d ranks, epoch %s: every sum is %.0f: %s (%lld us)\n", world.size(), to_string(reply.epoch).c_str(),
              expected, right ? "right" : "WRONG", static_cast<long long>(took.count()));
  return right ? 0 : 1;
} catch (const troupe::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
