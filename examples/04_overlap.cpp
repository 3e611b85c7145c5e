/// A client's own work between two collectives, ordered on the devices without waiting on the CPU. Runs on GPUs if
/// there are any, otherwise on the mock.

#include <troupe/device/stream.hpp>
#include <troupe/runtime/runtime.hpp>

#include <cstddef>
#include <cstdio>
#include <vector>

namespace {

constexpr std::size_t count = 1024;

/// Returns an in-place all_reduce of each rank's \p values.
troupe::world_request sums(const std::vector<troupe::operand>& values) {
  troupe::request_builder requests{static_cast<int>(values.size())};
  return requests.all_reduce(values, values, count, troupe::dtype::f32, troupe::reduction::sum);
}

} // namespace

int main() try {
  troupe::runtime runtime;
  troupe::world world = runtime.form_world();
  constexpr std::size_t length = count * sizeof(float);
  std::vector<troupe::operand> values;
  std::vector<troupe::buffer> next;
  std::vector<troupe::stream> streams; // the client's own, one on each device
  for (const troupe::rank self : world.local_ranks()) {
    values.emplace_back(world.allocate(self, length));
    next.push_back(world.allocate(self, length));
    streams.emplace_back(world.device_of(self));
    world.write(self, std::vector<float>(count, 1.F), values.back()).get();
  }

  // [overlap]
  troupe::overlapped first = world.ask_overlapped(sums(values));
  // Ready as soon as the operation is in every GPU's queue, long before it completes.
  const troupe::enqueued told = first.enqueued.get();

  std::vector<troupe::operand> made;
  for (std::size_t i = 0; i < told.ranks.size(); ++i) {
    streams[i].ref().wait(*told.ranks[i].behind);
    // A kernel of yours would be launched here; this copy stands for it.
    streams[i].ref().copy(next[i].data(), values[i].memory.data(), length);
    // On the device, the second collective waits for the work that is in the stream now.
    made.emplace_back(next[i], record_event(world.device_of(told.ranks[i].rank), streams[i]));
  }
  troupe::overlapped second = world.ask_overlapped(sums(made));

  // Events guarantee order, not success: use the results only after both outcomes.
  first.outcome.get();
  second.outcome.get();
  // [overlap]

  const auto expected = static_cast<float>(world.size() * world.size());
  const bool right = world.read<float>(troupe::rank{0}, next[0]).get() == std::vector<float>(count, expected);
  std::printf("%d ranks: every sum of sums is %.0f: %s\n", world.size(), expected, right ? "right" : "WRONG");
  return right ? 0 : 1;
} catch (const troupe::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
